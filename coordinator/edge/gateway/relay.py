"""Forwarding of messages to one server and back: `initialize`, notifications and requests without own handling."""

from __future__ import annotations

from typing import Any

import msgspec

from coordinator.edge.gateway.audited_refusals import RefusalAudit
from coordinator.edge.gateway.clients import ClientSessions
from coordinator.edge.gateway.elicitations import ElicitationHandler
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.freshness import FreshnessCheck
from coordinator.edge.gateway.listings import AgentToolListings
from coordinator.edge.gateway.server_requests import ServerRequestGate
from coordinator.edge.gateway.upstream_sessions import UpstreamSessions
from coordinator.edge.gateway.upstreams import (
    UnfinishedStream,
    UpstreamClient,
    UpstreamSessionForgotten,
    read_upstream_response_body,
    relay_events_before_call_response,
    relay_events_before_response,
    send_final_response_to_client,
)
from coordinator.errors import Forbidden
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway.elicitation import add_elicitation_to_initialize
from coordinator.mcp.protocol.http_client import PermissionRecheck, UpstreamAnswer
from coordinator.mcp.protocol.messages import BRAKED, INTERNAL, TASKS
from coordinator.policy.limits.brakes import ActiveBrake

# Requests that pass a brake: what there is, what is new, and what becomes of a call that runs, or is to run no more.
PASS_A_BRAKE = frozenset(
    {
        "ping",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "server/discover",
        "subscriptions/listen",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tools/list",
    }
)


class RequestStoppedByBrake(Exception):
    """A brake is on for the agent."""

    def __init__(self, brake: ActiveBrake) -> None:
        super().__init__(brake.agent_message)
        self.brake = brake


class MessageRelay:
    """One a process."""

    def __init__(
        self,
        upstreams: UpstreamClient,
        clients: ClientSessions,
        links: UpstreamSessions,
        listings: AgentToolListings,
        *,
        instant: FreshnessCheck,
        refusals: RefusalAudit,
        elicitations: ElicitationHandler,
        server_requests: ServerRequestGate,
    ) -> None:
        self._server_requests = server_requests
        self._elicitations = elicitations
        self._upstreams = upstreams
        self._clients = clients
        self._links = links
        self._listings = listings
        self._instant = instant
        self._refusals = refusals

    async def relay_request_unless_braked(self, exchange: Exchange, change: Any) -> None:
        """Pass a request on, and its answer back; nothing that reads or does something while a brake is on."""
        try:
            await self.forward_request_and_answer(exchange, change)
        except RequestStoppedByBrake as stopped:
            await self.audit_and_send_brake_refusal(exchange, stopped)

    async def forward_request_and_answer(self, exchange: Exchange, change: Any) -> bytes | None:
        """Pass a request on, and its answer back, as `relay` does; return the answer, None where it comes elsewhere.

        Raises RequestStoppedByBrake.
        """
        if exchange.message.method in PASS_A_BRAKE:
            return await self.send_request_and_relay_response(exchange, change, None)

        async def require_no_brake() -> None:
            await self.require_agent_not_braked(exchange)

        await require_no_brake()
        return await self.send_request_and_relay_response(exchange, change, require_no_brake)

    async def audit_and_send_brake_refusal(self, exchange: Exchange, stopped: RequestStoppedByBrake) -> bytes:
        """Answer that a brake stops a request, and have that audited; return the answer."""
        refusal_text = (
            f"{exchange.message.method} was not sent to the server {exchange.server.name}. {stopped}"
        )
        await self._refusals.audit_access_refusal_with_throttle(
            exchange.admission,
            exchange.agent_id,
            exchange.server.name,
            Forbidden(refusal_text),
            is_known_server=True,
        )
        response = answers.encode_error_response(exchange.message.id, BRAKED, refusal_text)
        await exchange.line.send_answer(response)
        return response

    async def require_agent_not_braked(self, exchange: Exchange) -> None:
        """Raise RequestStoppedByBrake where a brake is on for the agent at this instant."""
        _, brake = await self._instant.get_policy_freshness_and_brake(exchange.agent_names_for_brakes)
        if brake is not None:
            raise RequestStoppedByBrake(brake)

    async def send_request_and_relay_response(
        self, exchange: Exchange, change: Any, recheck: PermissionRecheck | None
    ) -> bytes | None:
        async def transform_response(body: bytes) -> bytes:
            checked = await self._server_requests.replace_response_asking_refused_input(
                exchange, body, exchange.line
            )
            if change is None:
                return checked
            changed_body: bytes = await change(exchange, checked)
            return changed_body

        answer = await self.send_message_to_upstream(exchange, recheck)
        try:
            async with self._server_requests.intercept_server_requests_during_block(
                exchange, exchange.line
            ) as requests:
                response, event = await relay_events_before_response(
                    answer,
                    exchange.message.id,
                    exchange.line,
                    transform=transform_response,
                    take_message=requests.intercept_server_message,
                )
        except UnfinishedStream as left_open:
            if not left_open.by_server:
                raise
            await exchange.line.end_event_stream()  # its client asks the server for the rest
            return None
        finally:
            answer.close()
        await send_final_response_to_client(exchange.line, response, event, answer.status)
        return response

    async def send_message_to_upstream(
        self, exchange: Exchange, recheck: PermissionRecheck | None = None
    ) -> UpstreamAnswer:
        """Send a message on; return the answer. Raises UpstreamFailed, SessionOver, and what `recheck` raises."""
        link = exchange.client.links.get(exchange.server.name) if exchange.client else None
        session = link.upstream_session if link else None
        try:
            if recheck is not None:
                return await self._upstreams.send_call_with_brake_recheck(
                    exchange, exchange.message.raw, session=session, recheck=recheck
                )
            return await self._upstreams.send_client_message(exchange, exchange.message.raw, session=session)
        except UpstreamSessionForgotten:
            raise await self._links.end_session_and_build_lost_error(exchange) from None

    async def forward_notification_or_response(self, exchange: Exchange) -> None:
        """Pass on a notification, or the response to a request of the server's."""
        if exchange.message.is_response and await self._server_requests.refuse_client_answer_if_braked(
            exchange
        ):
            await exchange.line.send_status_without_body(202)
            return
        if (
            exchange.message.is_response
            and not await self._elicitations.close_elicitation_and_decide_forwarding(
                exchange, exchange.server.name, exchange.message
            )
        ):
            await exchange.line.send_status_without_body(202)
            return
        answer = await self.send_message_to_upstream(exchange)
        try:
            if answer.status in {200, 202, 204}:
                await exchange.line.send_status_without_body(202)
                return
            body = await read_upstream_response_body(answer, 64 * 1024)
            await exchange.line.send_answer(
                body or answers.encode_error_response(None, INTERNAL, "The server refused the message."),
                answer.status,
            )
        finally:
            answer.close()

    async def initialize_client_session(self, exchange: Exchange) -> None:
        """Begin a session: the server's own, and one of ours around it."""
        declared = add_elicitation_to_initialize(exchange.message.raw)
        answer = await self._upstreams.send_client_message(exchange, declared, session=None)
        try:
            response, _ = await relay_events_before_call_response(answer, exchange, None)
        finally:
            answer.close()
        version = parse_negotiated_protocol_version(response)
        if version is not None:
            client = await self._clients.begin_client_session(
                exchange.server.name,
                key_id=exchange.caller_key.id,
                agent_id=exchange.agent_id,
                version=version,
                params=exchange.message.params,
            )
            client = await self._clients.save_upstream_session_link(
                client, exchange.server.name, answer.headers.get("mcp-session-id"), version
            )
            exchange.line.extra.append((b"mcp-session-id", client.session_id.encode()))
        await exchange.line.send_answer(response, answer.status)

    async def advertise_tasks_in_initialize_response(self, exchange: Exchange, body: bytes) -> bytes:
        """Return what a server says of itself, with our tasks where a call of this agent may have to wait."""
        if not await self._listings.can_agent_call_require_approval(exchange):
            return body
        try:
            value = msgspec.json.decode(body)
            extensions = value["result"]["capabilities"].setdefault("extensions", {})
            extensions.setdefault(TASKS, {})
            return msgspec.json.encode(value)
        except (msgspec.MsgspecError, KeyError, AttributeError, TypeError):
            return body


def parse_negotiated_protocol_version(response: bytes) -> str | None:
    try:
        protocol_version = msgspec.json.decode(response)["result"]["protocolVersion"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return None
    return protocol_version if isinstance(protocol_version, str) else None
