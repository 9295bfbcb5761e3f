"""One request of an MCP client: its sender, server and session, and the means to answer it."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import validate_host

from coordinator.actions.mcp.gateway_sessions import GatewayClient
from coordinator.client.mcp_methods import META_CLIENT
from coordinator.edge.gateway.call_timeouts import CallTimeouts
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.http.auth import Admission
from coordinator.edge.http.messages import Headers
from coordinator.edge.policy.brake_gate import BrakeGate
from coordinator.edge.polling.waits import DisconnectWatcher
from coordinator.errors import Forbidden
from coordinator.identity.keys import KeyIdentity
from coordinator.mcp.gateway.call_limits import WHOLE_SERVER
from coordinator.mcp.gateway.collections import CollectionTools
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.protocol import param_headers
from coordinator.mcp.protocol.agent_call_ids import NO_CLAIM, AgentCallIds
from coordinator.mcp.protocol.messages import NAMED_BY, McpMessage
from coordinator.policy.limits.brakes import ActiveBrake
from coordinator.sessions.agent_programs import AGENT_TITLES, MCP_CLIENTS

if TYPE_CHECKING:  # it is of one call, and imports this
    from coordinator.edge.gateway.records import CallRecord

NO_AGENT = (
    "This key is not bound to an agent. Use a key that is bound to one, or name the agent in the header "
    "X-Signalbox-Agent."
)
BOTH = b"application/json, text/event-stream"
_VERSION = re.compile(rb"\d{4}-\d\d-\d\d")
_TRACE = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")  # W3C's traceparent
# How clients call themselves in the beginning, and the agent program that this is.
PROGRAMS = tuple((MCP_CLIENTS.get(name, name), name) for name in AGENT_TITLES)


@dataclass(slots=True)
class Exchange:
    """`client` is the client's session; None for a stateless message. `started` is on time.perf_counter's clock.

    `brake` is the one that was on for the agent when the database was last asked, at `looked_at` (time.monotonic).
    `is_sent`: a server may have received the call. `resumed`: how often the rest of its answer was requested, since
    the stream ended before the response. `takes_notes`: the client's session is certainly its caller's, so what
    people write to it may go out with the answer. `claim` is what the agent's program stated about the call.
    `listing_problem`: why the server's tools could not be listed for it, as the end of "The server …".
    `record` is that of a call under way. `is_interactive`: its server asked something before it answered.
    `person` is the user who makes the call on a page: no program is its caller, the person's own access token goes with
    it, and nothing that its server asks is passed on.
    `trial_until`: until then it is the call that tries a server whose circuit breaker was open.
    `collection` is the one at whose address the request came: nothing but its tools is listed and called.
    """

    admission: Admission
    agent_id: str
    headers: Headers
    message: McpMessage
    server: UpstreamServer
    line: ResponseStream
    disconnect: DisconnectWatcher
    started: float
    client: GatewayClient | None = None
    program: str = ""
    named_session: str | None = None
    brake: ActiveBrake | None = None
    looked_at: float = 0.0
    is_sent: bool = False
    resumed: int = 0
    takes_notes: bool = False
    claim: AgentCallIds = NO_CLAIM
    listing_problem: str = ""
    record: CallRecord | None = None
    is_interactive: bool = False
    person: int | None = None
    trial_until: datetime | None = None
    collection: CollectionTools | None = None
    call_timeouts: CallTimeouts = field(default_factory=CallTimeouts)
    caller: GatewayCaller = field(init=False)

    def __post_init__(self) -> None:
        if self.claim is NO_CLAIM:  # else a message that is rebuilt for its server would lose it
            self.claim = self.message.claim
        self.program = identify_client_program(self.client_name)
        self.caller = GatewayCaller(self.agent_id, self.program)

    @property
    def caller_key(self) -> KeyIdentity:
        return self.admission.caller

    @property
    def client_name(self) -> str:
        """Return how the client calls itself."""
        client: Any = self.client.client if self.client else self.message.meta.get(META_CLIENT)
        name = client.get("name") if isinstance(client, dict) else None
        return name[:200] if isinstance(name, str) else ""

    @property
    def endpoint_name(self) -> str:
        """Return the name of the address that the request came to: its server, a collection's, "" for all servers."""
        return self.server.name if self.collection is None else self.collection.endpoint_name

    def is_tool_served_at_endpoint(self, server_id: str, tool: str) -> bool:
        """Say whether the address serves this tool, as far as the agent may see it."""
        return self.collection is None or self.collection.has_tool(server_id, tool)

    @property
    def called_tool_or_whole_server(self) -> str:
        """Return the tool that is called; WHOLE_SERVER for another request."""
        is_call = self.message.method == "tools/call"
        return (self.message.target_name or WHOLE_SERVER) if is_call else WHOLE_SERVER

    @property
    def call_seconds(self) -> int:
        """Return how long the server may take for this request."""
        return self.server.call_timeout_seconds_of_tool(self.called_tool_or_whole_server)

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """Return what the client says that it can do."""
        return self.client.capabilities if self.client else self.message.stateless_client_capabilities

    @property
    def agent_names_for_brakes(self) -> list[str]:
        """Return the names by which a brake may mean the agent, its id first: nothing proves which program it is."""
        return [self.agent_id, *AGENT_TITLES]

    async def find_brake_of_calling_agent(self, gate: BrakeGate) -> ActiveBrake | None:
        """Return the brake that is on for this agent; None where the call may go on."""
        return await gate.find_agent_brake(self.agent_id, self.agent_names_for_brakes[1:])

    @property
    def accepts_event_stream(self) -> bool:
        return b"text/event-stream" in self.headers.get(b"accept", b"") or b"*/*" in self.headers.get(
            b"accept", b""
        )


def resolve_agent_id_of_caller(admission: Admission, headers: Headers) -> str:
    """Return the agent that a key speaks for. Raises Forbidden where it is none."""
    named_agent = headers.get(b"x-signalbox-agent", b"").decode("latin-1").strip()
    bound = admission.caller.agent_id
    if named_agent and not admission.caller.can_speak_for_agent(named_agent):
        raise Forbidden(
            f"This key is bound to {admission.caller.bound_agents_label} and may not call as another agent."
        )
    agent_id = bound or named_agent
    if not agent_id or "\x00" in agent_id:
        raise Forbidden(NO_AGENT)
    return agent_id


def require_allowed_origin_host(headers: Headers) -> None:
    """Keep pages of other sites out, whatever name they have for this machine (DNS rebinding). Raises Forbidden."""
    origin = headers.get(b"origin")
    if origin is None:
        return
    host = urlsplit(origin.decode("latin-1")).hostname or ""
    if not validate_host(f"[{host}]" if ":" in host else host, settings.ALLOWED_HOSTS):
        raise Forbidden("Pages of other sites may not call MCP servers here.")


def parse_signalbox_session_or_none(headers: Headers) -> str | None:
    """Return the session that the client says it belongs to; a variable that was not filled in names none."""
    named_session = headers.get(b"x-signalbox-session", b"").decode("latin-1").strip()
    return (
        None
        if not named_session or named_session.startswith("$") or "\x00" in named_session
        else named_session[:200]
    )


def is_client_timeout_reason(reason: str) -> bool:
    """Say whether a client cancels since its own patience ended: people may still decide, as where its line breaks."""
    lowered_reason = reason.lower()
    return "timed out" in lowered_reason or "timeout" in lowered_reason


def identify_client_program(name: str) -> str:
    """Return the agent program that a client's name means; nothing where it is none that we know."""
    lowered = name.lower()
    return next((program for begins, program in PROGRAMS if lowered.startswith(begins)), "")


def find_header_body_mismatch(message: McpMessage, headers: Headers) -> str | None:
    """Return where the headers of a stateless message contradict its body; None where they agree.

    The upstream server may trust the headers, so a message whose body differs is not forwarded.
    """
    expected_headers = {
        b"mcp-protocol-version": message.protocol_version,
        b"mcp-method": message.method or None,
        b"mcp-name": message.target_name if message.method in NAMED_BY else None,
    }
    for name, expected_value in expected_headers.items():
        header_value = headers.get(name)
        if header_value is None and expected_value is not None:
            return f"The header {name.decode()} is missing."
        if (
            header_value is not None
            and expected_value is not None
            and decode_base64_or_plain_header(header_value) != expected_value
        ):
            return f"The header {name.decode()} does not match the body."
    return None


def decode_base64_or_plain_header(value: bytes) -> str | None:
    text = value.strip()
    if not (text.startswith(b"=?base64?") and text.endswith(b"?=")):
        return text.decode("latin-1")
    try:
        return base64.b64decode(text[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def find_parameter_header_mismatch(exchange: Exchange) -> str | None:
    """Return which header of a stateless call says something else than the argument that it repeats; None for none."""
    for name, path in list_declared_parameter_headers(exchange):
        header_value = exchange.headers.get(name.encode())
        if header_value is not None and not is_header_equal_to_argument(header_value, exchange, path):
            return f"The header {name} does not match the argument {'.'.join(path)}."
    return None


def build_upstream_headers(exchange: Exchange, method: str) -> Headers:
    """Return the headers of a client's request that go on to the server, none of which says what its body does not."""
    upstream_headers = {}
    if b"accept" in exchange.headers:
        upstream_headers[b"accept"] = BOTH if exchange.accepts_event_stream else b"application/json"
    if _TRACE.fullmatch(exchange.headers.get(b"traceparent", b"")):
        upstream_headers[b"traceparent"] = exchange.headers[b"traceparent"]
    version = exchange.headers.get(b"mcp-protocol-version", b"")
    # A stateless request's body has the same.
    if _VERSION.fullmatch(version) or (version and exchange.message.is_stateless):
        upstream_headers[b"mcp-protocol-version"] = version
    if method == "GET" and b"last-event-id" in exchange.headers:
        upstream_headers[b"last-event-id"] = exchange.headers[b"last-event-id"]
    if exchange.message.is_stateless:
        names = [b"mcp-method"] if exchange.message.method else []
        names += [b"mcp-name"] if exchange.message.target_name is not None else []
        upstream_headers |= {name: exchange.headers[name] for name in names if name in exchange.headers}
        for header, path in list_declared_parameter_headers(exchange):
            name = header.encode()
            if name in exchange.headers and is_header_equal_to_argument(
                exchange.headers[name], exchange, path
            ):
                upstream_headers[name] = exchange.headers[name]
    return upstream_headers


def list_declared_parameter_headers(exchange: Exchange) -> param_headers.Declared:
    tool = (
        exchange.server.tools.get(exchange.message.target_name or "")
        if exchange.message.method == "tools/call"
        else None
    )
    return tool.param_headers if tool is not None and exchange.message.is_stateless else ()


def is_header_equal_to_argument(header: bytes, exchange: Exchange, path: tuple[str, ...]) -> bool:
    return param_headers.is_header_matching_argument(
        decode_base64_or_plain_header(header), exchange.message.params.get("arguments"), path
    )
