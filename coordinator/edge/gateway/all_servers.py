"""The endpoint `/mcp`: all MCP servers that an agent may use as one server, with tools named `server__tool`.

`/mcp/collections/NAME` answers in the same way, with only the tools of a collection.

To the client this endpoint is an MCP server. It forwards the client's calls to each upstream server, in a session
that is opened when it is first needed. Resources and prompts are served only at each server's own endpoint.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_sessions import StoredUpstreamSession
from coordinator.client import mcp_methods, sse
from coordinator.edge.gateway.audited_refusals import RefusalAudit
from coordinator.edge.gateway.calls import ToolCallHandler
from coordinator.edge.gateway.clients import ClientSessions
from coordinator.edge.gateway.elicitations import ElicitationHandler
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.listings import AgentToolListings
from coordinator.edge.gateway.registry import ServerRegistry
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.server_requests import ServerRequestGate
from coordinator.edge.gateway.upstream_sessions import STATELESS, VERSIONS, UpstreamSessions
from coordinator.edge.gateway.upstreams import UpstreamClient, UpstreamSessionForgotten
from coordinator.errors import Forbidden, NotFound, SignalboxError
from coordinator.lib.asgi import Send
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers, call_limits, servers, tool_search
from coordinator.mcp.gateway.listing import UnreadableListing
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.gateway.tool_search import DEFAULT_FOUND_TOOLS
from coordinator.mcp.protocol import messages
from coordinator.mcp.protocol.http_client import UpstreamFailed
from coordinator.mcp.protocol.messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    TASKS,
    McpMessage,
    UnreadableMessage,
)
from coordinator.mcp.servers.names import CALL_TOOL, FIND_TOOLS, name_in_calls
from coordinator.models.mcp import ListedTools
from coordinator.policy.grants import access

ABOUT = {"name": "signalbox", "title": "Signalbox", "version": "1"}
INSTRUCTIONS = (
    "Tools of all MCP servers that are open to you, named server__tool. Some calls wait for a person."
)
COLLECTION_INSTRUCTIONS = (
    "Chosen tools of the MCP servers that are open to you, named server__tool. Some calls wait for a person."
)
AT_ONCE = 8  # servers that are asked for their tools at the same time
LIST_WITHIN = 20.0  # seconds that one server has to list its tools
NOTIFY_TIMEOUT_SECONDS = 5.0  # seconds to wait for servers to accept a notification
# Client notifications that are forwarded to all servers, as they do not say which one is meant.
CANCELLED = "notifications/cancelled"
FOR_SERVERS = frozenset({CANCELLED, "notifications/roots/list_changed"})
MARK = "sbx:"  # prefix of an id that replaces a server's own id
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class ServerTaggedStream(ResponseStream):
    """A line on which requests of several servers reach one client: each says whose it is by its id."""

    __slots__ = ("server",)

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self.server = ""

    async def send_event(self, raw: bytes) -> None:
        """Send an event; a server's request with an id that leads back to it."""
        await super().send_event(tag_server_event(raw, self.server) if self.server else raw)


class CombinedServersEndpoint:
    """What answers at `/mcp`. One a process."""

    def __init__(
        self,
        *,
        clients: ClientSessions,
        links: UpstreamSessions,
        refusals: RefusalAudit,
        registry: ServerRegistry,
        upstreams: UpstreamClient,
        listings: AgentToolListings,
        calls: ToolCallHandler,
        threads: EdgeThreads,
        elicitations: ElicitationHandler,
        server_requests: ServerRequestGate,
    ) -> None:
        self._server_requests = server_requests
        self._elicitations = elicitations
        self._clients = clients
        self._links = links
        self._refusals = refusals
        self._registry = registry
        self._upstreams = upstreams
        self._listings = listings
        self._calls = calls
        self._threads = threads

    async def answer_combined_message(self, exchange: Exchange) -> None:
        """Answer one message."""
        ways: dict[str, Callable[[Exchange], Awaitable[None]]] = {
            "initialize": self.begin_session_and_answer_initialize,
            "server/discover": self.send_discover_answer,
            "ping": self.send_ping_answer,
            "tools/list": self.send_combined_tool_list,
            "tools/call": self.call_tool_and_send_answer,
            "resources/list": self.send_empty_resource_list,
            "resources/templates/list": self.send_empty_resource_list,
        }
        if exchange.message.is_response:
            await self.forward_client_response(exchange)
        elif not exchange.message.is_request:
            await self.forward_and_accept_client_notification(exchange)
        elif exchange.message.method in ways:
            await ways[exchange.message.method](exchange)
        else:
            refusal_text = (
                "Not available at this address, which has the tools of all servers. "
                "A server's own address has it."
            )
            await exchange.line.send_answer(
                answers.encode_error_response(exchange.message.id, METHOD_NOT_FOUND, refusal_text),
                404 if exchange.client is None else 200,
            )

    async def begin_session_and_answer_initialize(self, exchange: Exchange) -> None:
        protocol_version = exchange.message.params.get("protocolVersion")
        version = (
            protocol_version
            if isinstance(protocol_version, str) and protocol_version in VERSIONS
            else VERSIONS[0]
        )
        client = await self._clients.begin_client_session(
            exchange.endpoint_name,
            key_id=exchange.caller_key.id,
            agent_id=exchange.agent_id,
            version=version,
            params=exchange.message.params,
        )
        exchange.line.extra.append((b"mcp-session-id", client.session_id.encode()))
        value = {
            "protocolVersion": version,
            "capabilities": {"tools": {"listChanged": True}} | await self.load_resources_capability(),
            "serverInfo": ABOUT,
            "instructions": COLLECTION_INSTRUCTIONS if exchange.collection else INSTRUCTIONS,
        }
        await exchange.line.send_answer(answers.encode_result_response(exchange.message.id, value))

    async def send_discover_answer(self, exchange: Exchange) -> None:
        value = {
            "resultType": "complete",
            "supportedVersions": [STATELESS, *VERSIONS],
            "capabilities": {"tools": {}, "extensions": {TASKS: {}}} | await self.load_resources_capability(),
            "serverInfo": ABOUT,
            "instructions": COLLECTION_INSTRUCTIONS if exchange.collection else INSTRUCTIONS,
            "ttlMs": 60_000,
            "cacheScope": "private",
        }
        await exchange.line.send_answer(answers.encode_result_response(exchange.message.id, value))

    async def load_resources_capability(self) -> dict[str, Any]:
        """Return the capability by which clients read the rest of long results, where results have a limit."""
        is_limited = await self._threads.run_in_thread(call_limits.has_any_server_result_limit)
        return {"resources": {}} if is_limited else {}

    async def send_empty_resource_list(self, exchange: Exchange) -> None:
        """Answer that nothing is listed: the rest of a result is read at the address that the result names."""
        value: dict[str, Any] = {mcp_methods.LISTS[exchange.message.method]: []}
        if exchange.message.is_stateless:
            value |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        await exchange.line.send_answer(answers.encode_result_response(exchange.message.id, value))

    async def send_ping_answer(self, exchange: Exchange) -> None:
        await exchange.line.send_answer(answers.encode_result_response(exchange.message.id, {}))

    async def send_combined_tool_list(self, exchange: Exchange) -> None:
        """Answer with the tools of all servers that can be reached, sorted by server and name.

        Servers that cannot be reached, or whose names are ambiguous in a call, are listed in `_meta`. An agent that
        uses tool search receives only the two tools for it.
        """
        if exchange.client is None and exchange.caller_key.session_id is not None:
            await self._links.get_or_create_stateless_client_session(
                exchange
            )  # by which hooks and questions of this agent know that it is here
        shown_tools = await self._threads.run_in_thread(
            tool_search.load_tool_listing_setting, exchange.agent_id
        )
        value: dict[str, Any] = {"tools": list(tool_search.SEARCH_TOOLS)}
        is_empty_collection = exchange.collection is not None and not exchange.collection.tools
        if shown_tools.listed is not ListedTools.SEARCH or is_empty_collection:
            tools, silent, twins = await self.fetch_tools_and_unreachable_servers(exchange)
            value["tools"] = [msgspec.Raw(tool) for tool in tools]
            meta = {"signalbox/unreachable": silent, "signalbox/same-name": twins}
            if silent or twins:
                value["_meta"] = {name: servers for name, servers in meta.items() if servers}
        if exchange.message.is_stateless:
            value |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        await exchange.line.send_answer(answers.encode_result_response(exchange.message.id, value))

    async def fetch_tools_and_unreachable_servers(
        self, exchange: Exchange
    ) -> tuple[list[bytes], list[str], list[str]]:
        """Return the tools of all servers by server and name, the servers that did not answer, and those alike."""
        semaphore = asyncio.Semaphore(AT_ONCE)
        opened = await self.find_servers_open_to_agent(exchange)
        if exchange.collection is not None:
            opened = [server for server in opened if exchange.collection.has_tool_of_server(server.name)]
        alone = [server for server in opened if not server.servers_with_same_call_name]
        server_tools = await asyncio.gather(
            *(self.fetch_server_name_and_tools(exchange, server, semaphore) for server in alone)
        )
        tools = [tool for _, some in sorted(server_tools) for tool in some or []]
        silent = sorted(name for name, some in server_tools if some is None)
        twins = sorted(server.name for server in opened if server.servers_with_same_call_name)
        return tools, silent, twins

    async def send_tool_search_answer(self, exchange: Exchange) -> None:
        """Answer `find_tools` with definitions of tools that the agent may see."""
        arguments = exchange.message.params.get("arguments") or {}
        query = arguments.get("query", "") if isinstance(arguments, dict) else None
        limit = arguments.get("limit", DEFAULT_FOUND_TOOLS) if isinstance(arguments, dict) else None
        if not isinstance(query, str) or not isinstance(limit, int):
            message = f"{FIND_TOOLS} takes a query, which is a text, and a limit, which is a number."
            await exchange.line.send_answer(
                answers.encode_error_response(exchange.message.id, INVALID_PARAMS, message)
            )
            return
        tools, silent, _ = await self.fetch_tools_and_unreachable_servers(exchange)
        value = tool_search.find_tools(tools, query, limit, silent)
        if exchange.message.is_stateless:
            value["resultType"] = "complete"
        await exchange.line.send_answer(answers.encode_result_response(exchange.message.id, value))

    async def find_servers_open_to_agent(self, exchange: Exchange) -> list[UpstreamServer]:
        """Return the servers of which something is open to the agent, those that cannot be used now among them."""
        names = await self._threads.run_in_thread(
            access.load_default_policies_by_server, timezone.now(), exchange.agent_id
        )
        open_servers = []
        for name in names:
            server = await self._registry.get_cached_or_load_server(name)
            if server is not None and not server.is_off and not server.is_only_on_agent_machine:
                inner = replace(exchange, server=server)
                if await self._listings.can_agent_reach_server(inner):
                    open_servers.append(server)
        return open_servers

    async def fetch_server_name_and_tools(
        self, exchange: Exchange, server: UpstreamServer, semaphore: asyncio.Semaphore
    ) -> tuple[str, list[bytes] | None]:
        async with semaphore:
            try:
                async with asyncio.timeout(LIST_WITHIN):
                    inner = await self._links.ensure_exchange_has_upstream_session(
                        replace(exchange, server=server)
                    )
                    return server.name, await self._listings.fetch_and_encode_visible_tools(
                        inner, f"{name_in_calls(server.name)}__"
                    )
            except (UpstreamFailed, UnreadableListing, SignalboxError, TimeoutError):
                return server.name, None

    async def forward_and_accept_client_notification(self, exchange: Exchange) -> None:
        """Take a client's notification; what its servers have to know is passed on to them."""
        if exchange.client is not None and exchange.message.method in FOR_SERVERS:
            await self.notify_linked_upstream_servers(exchange, exchange.message.raw)
        await exchange.line.send_status_without_body(202)

    async def end_combined_session(self, exchange: Exchange) -> None:
        """End the client's session, and the servers' own within it."""
        assert exchange.client is not None
        await self._clients.end_client_and_timeline_session(exchange.client)
        await self.notify_linked_upstream_servers(exchange, b"", method="DELETE")

    async def notify_linked_upstream_servers(
        self, exchange: Exchange, body: bytes, method: str = "POST"
    ) -> None:
        """Send a message to all servers with which the client has a session; give up after `NOTIFY_TIMEOUT_SECONDS`."""
        assert exchange.client is not None

        async def notify_one_upstream_server(server_id: str, link: StoredUpstreamSession) -> None:
            server = await self._registry.get_cached_or_load_server(server_id)
            if server is None or server.target is None or (link.upstream_session is None and not body):
                return
            inner = replace(exchange, server=server)
            with contextlib.suppress(UpstreamFailed):
                answer = await self._upstreams.send_client_message(
                    inner, body, session=link.upstream_session, method=method
                )
                answer.close()

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NOTIFY_TIMEOUT_SECONDS):
                await asyncio.gather(
                    *(notify_one_upstream_server(*link) for link in exchange.client.links.items())
                )

    async def call_tool_and_send_answer(self, exchange: Exchange) -> None:
        if exchange.message.params.get("name") == FIND_TOOLS:
            await self.send_tool_search_answer(exchange)
            return
        if exchange.message.params.get("name") == CALL_TOOL:
            try:
                exchange = replace(exchange, message=tool_search.unwrap_call_tool_message(exchange.message))
            except UnreadableMessage as problem:
                await exchange.line.send_answer(
                    answers.encode_error_response(exchange.message.id, problem.code, str(problem))
                )
                return
        name = exchange.message.params.get("name")
        prefixes = [
            (f"{name_in_calls(server.name)}__", server)
            for server in await self.find_servers_open_to_agent(exchange)
        ]
        matching_prefixes = [pair for pair in prefixes if isinstance(name, str) and name.startswith(pair[0])]
        # Of names that begin alike the longest has the call. Where that server is closed to the agent, a shorter one's
        # tool of this name is refused when it is judged.
        prefix, server = max(matching_prefixes, key=lambda pair: len(pair[0]), default=("", None))
        if server is None or not isinstance(name, str):
            await self.audit_and_refuse_unknown_tool(exchange, name)
            return
        if server.servers_with_same_call_name:
            server_names = " and ".join([server.name, *server.servers_with_same_call_name])
            message = f"Calls cannot tell the servers {server_names} apart. An admin must rename one."
            await exchange.line.send_answer(
                answers.encode_error_response(exchange.message.id, INVALID_PARAMS, message)
            )
            return
        tool = name.removeprefix(prefix)
        if not exchange.is_tool_served_at_endpoint(server.name, tool):
            await self.audit_and_refuse_unknown_tool(exchange, name)
            return
        try:
            inner = await self._links.ensure_exchange_has_upstream_session(
                replace(exchange, server=server, message=rename_called_tool(exchange.message, tool))
            )
        except UpstreamFailed as problem:
            message = answers.describe_call_not_sent(server.name, tool, str(problem))
            await exchange.line.send_answer(answers.encode_tool_error_response(exchange.message, message))
            return
        if b"mcp-name" in inner.headers:
            inner.headers = inner.headers | {b"mcp-name": encode_tool_name_header(tool)}
        if isinstance(exchange.line, ServerTaggedStream):
            exchange.line.server = server.name
        await self._calls.handle_tool_call(inner)

    async def audit_and_refuse_unknown_tool(self, exchange: Exchange, name: Any) -> None:
        """Refuse a call of no server that is open here, and have that audited.

        To whom nothing of a server is open, it is like one that is not there. At a collection's address, so is a tool
        that is not in the collection.
        """
        if exchange.collection is not None:
            await self.audit_and_refuse_uncollected_tool(exchange, exchange.collection.name, name)
            return
        meant_tool = (
            await self._threads.run_in_thread(servers.find_server_name_of_tool, name)
            if isinstance(name, str)
            else None
        )
        server = await self._registry.get_cached_or_load_server(meant_tool) if meant_tool else None
        refusal_text = (
            "There is no such tool here. Tools that you are not shown are denied. A person can allow them at "
        )
        refusal_text += f"{settings.AGENT_URL}{gateway_calls.GRANTS_PAGE}; tell them what you need it for."
        shown_name = str(name)[:200]
        if server is None:
            problem: SignalboxError = NotFound(
                f"{shown_name!r} is called, which is no registered server's tool."
            )
        elif not await self._listings.can_agent_reach_server(replace(exchange, server=server)):
            problem = Forbidden(
                f"{exchange.agent_id} has no grant for anything of the MCP server {server.name}."
            )
        else:
            refusal_reason = (
                "runs beside its agent, and is not called from here"
                if server.is_only_on_agent_machine
                else server.failure
            )
            problem = Forbidden(f"The MCP server {server.name} {refusal_reason}.")
            refusal_text = f"Denied: {shown_name} did not run. {problem.detail} An admin can change that."
        await self.audit_and_refuse_call(
            exchange,
            server.name if server else shown_name,
            problem,
            refusal_text,
            is_known_server=server is not None,
        )

    async def audit_and_refuse_uncollected_tool(
        self, exchange: Exchange, collection_name: str, name: Any
    ) -> None:
        """Refuse a call of a tool that a collection's address does not serve to the agent, and have that audited."""
        problem = NotFound(
            f"{str(name)[:200]!r} is called, which the collection {collection_name} does not serve."
        )
        refusal_text = (
            f"There is no such tool here. This address has the tools of the collection {collection_name}, as far as "
            "they are open to you. An administrator can change the collection."
        )
        await self.audit_and_refuse_call(
            exchange, exchange.endpoint_name, problem, refusal_text, is_known_server=True
        )

    async def audit_and_refuse_call(
        self,
        exchange: Exchange,
        target: str,
        problem: SignalboxError,
        refusal_text: str,
        *,
        is_known_server: bool,
    ) -> None:
        """Have a refusal audited with its problem, and answer its text as an error of the parameters."""
        await self._refusals.audit_access_refusal_with_throttle(
            exchange.admission, exchange.agent_id, target, problem, is_known_server=is_known_server
        )
        await exchange.line.send_answer(
            answers.encode_error_response(exchange.message.id, INVALID_PARAMS, refusal_text)
        )

    async def forward_client_response(self, exchange: Exchange) -> None:
        """Pass the response to a server's request on to that server."""
        server_id, number = split_tagged_request_id(exchange.message.id)
        server = await self._registry.get_cached_or_load_server(server_id) if server_id else None
        link = exchange.client.links.get(server_id) if exchange.client and server_id else None
        if server is None or link is None:
            await exchange.line.send_answer(
                answers.encode_error_response(None, INVALID_PARAMS, "Nobody asked for this response."), 400
            )
            return
        body = _encode(_fields(exchange.message.raw) | {"id": msgspec.Raw(_encode(number))})
        inner = replace(exchange, server=server, message=messages.parse_mcp_message(body))
        if await self._server_requests.refuse_client_answer_if_braked(inner):
            await exchange.line.send_status_without_body(202)
            return
        if not await self._elicitations.close_elicitation_and_decide_forwarding(
            inner, server_id, inner.message
        ):
            await exchange.line.send_status_without_body(202)
            return
        with contextlib.suppress(UpstreamSessionForgotten):
            answer = await self._upstreams.send_client_message(inner, body, session=link.upstream_session)
            answer.close()
        await exchange.line.send_status_without_body(202)


def rename_called_tool(message: McpMessage, tool: str) -> McpMessage:
    """Return a call with the tool's name as its server knows it; everything else stays as it came."""
    fields = _fields(message.raw)
    params = _fields(fields["params"]) | {"name": msgspec.Raw(_encode(tool))}
    return messages.parse_mcp_message(_encode(fields | {"params": msgspec.Raw(_encode(params))}))


def encode_tool_name_header(name: str) -> bytes:
    if name.isascii() and name.isprintable():
        return name.encode()
    return b"=?base64?" + base64.b64encode(name.encode()) + b"?="


def tag_server_event(event: bytes, server: str) -> bytes:
    """Return a server's request, and its word that it needs none any more, with an id that leads back to it."""
    data = sse.extract_event_data_or_empty(event)
    if b'"method"' not in data:
        return event
    try:
        fields = _fields(data)
        method = msgspec.json.decode(fields["method"])
        if "id" in fields:
            changed = {"id": tag_request_id(server, fields["id"])}
        elif method == CANCELLED:
            params = _fields(fields["params"])
            params["requestId"] = tag_request_id(server, params["requestId"])
            changed = {"params": msgspec.Raw(_encode(params))}
        else:
            return event
    except (msgspec.MsgspecError, KeyError):
        return event
    return sse.replace_event_data(event, _encode(fields | changed))


def tag_request_id(server: str, number: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(_encode(f"{MARK}{json.dumps([server, msgspec.json.decode(number)])}"))


def split_tagged_request_id(number: Any) -> tuple[str, Any]:
    """Return which server an id leads to, and its own id; no server where it is none of ours."""
    if not isinstance(number, str) or not number.startswith(MARK):
        return "", None
    try:
        server, own = json.loads(number.removeprefix(MARK))
    except (ValueError, TypeError):
        return "", None
    return (server, own) if isinstance(server, str) else ("", None)
