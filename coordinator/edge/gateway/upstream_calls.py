"""Sending of calls, and of requests of our own, to a server in a session that the server knows.

Stateless clients of one caller share a session with a server of an older version. As each client numbers its own
messages, they are sent under ids of ours and answered under the client's.
"""

from __future__ import annotations

import functools
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec

from coordinator.client import sse
from coordinator.client.mcp_methods import META_CAPABILITIES, META_CLIENT, META_VERSION
from coordinator.edge.gateway.call_limiter import CallLimiter
from coordinator.edge.gateway.elicitations import ElicitationHandler
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.result_cache import ResultCache
from coordinator.edge.gateway.resumption import ResponseResumer
from coordinator.edge.gateway.server_requests import ServerRequestGate
from coordinator.edge.gateway.server_tasks import ServerTasks
from coordinator.edge.gateway.upstream_sessions import UpstreamSessions
from coordinator.edge.gateway.upstreams import (
    BOTH,
    UpstreamClient,
    UpstreamSessionForgotten,
    is_server_request_or_unreadable,
    read_response_to_gateway_request,
    relay_events_before_call_response,
)
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway.elicitation import (
    RequiredInput,
    add_elicitation_capability_to_call,
    can_client_present_elicitation,
    parse_input_required_or_none,
)
from coordinator.mcp.protocol.http_client import PermissionRecheck

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


MAX_INPUT_ROUNDS = 10  # times that a server may ask in the middle of one call


class UpstreamSender:
    """One a process."""

    def __init__(
        self,
        upstreams: UpstreamClient,
        links: UpstreamSessions,
        tasks: ServerTasks,
        elicitations: ElicitationHandler,
        limiter: CallLimiter,
        *,
        cache: ResultCache,
        server_requests: ServerRequestGate,
    ) -> None:
        self._cache = cache
        self._server_requests = server_requests
        self._limiter = limiter
        self._elicitations = elicitations
        self._upstreams = upstreams
        self._tasks = tasks
        self._links = links
        self._resuming = ResponseResumer(upstreams)

    async def send_call_or_use_cached_result(
        self, exchange: Exchange, body: bytes, line: ResponseStream | None, recheck: PermissionRecheck
    ) -> tuple[bytes, bytes | None, int]:
        """Send a call that may run; forward what its server sends before the response, within the call's limits.

        Returns the response, the event in which it came if in one, and the status. Nothing runs in a session that the
        server forgot, so the call is sent once more in a new one, once `recheck` has found that it still may. Where the
        stream ends before the response, the rest is asked for. Where the cache has a result, nothing is sent.
        Raises UpstreamFailed (LeftOpen where the client asks for the rest itself), SessionOver, Busy, and what
        `recheck` raises.
        """
        await self._limiter.enforce_rates_and_circuit_breaker(exchange)
        entry = await self._cache.prepare_call_cache_entry(exchange, body)
        if entry is not None and entry.lookup.result is not None:
            await recheck()
            cached = await self._cache.audit_and_build_cached_response(exchange, entry)
            if cached is not None:
                response, _ = await self._limiter.inspect_and_limit_call_response(exchange, cached, None)
                return response, None, 200
        send = functools.partial(self.send_call_and_elicitation_answers, exchange, body, line, recheck)
        try:
            whole, event, status = await self._limiter.run_with_circuit_breaker(exchange, send)
        finally:
            await self._cache.delete_cached_results_after_write(exchange)
        response, event = await self._limiter.inspect_and_limit_call_response(exchange, whole, event)
        if entry is not None and not self._limiter.is_response_over_result_limit(exchange, whole):
            await self._cache.store_call_result_if_cacheable(exchange, entry, response, status)
        return response, event, status

    async def send_call_and_elicitation_answers(
        self, exchange: Exchange, body: bytes, line: ResponseStream | None, recheck: PermissionRecheck
    ) -> tuple[bytes, bytes | None, int]:
        """Send a call, and the answers of people to what its server asks in the middle of it."""
        try:
            answer = await self.send_upstream_call_once(exchange, body, line, recheck)
        except UpstreamSessionForgotten:
            await self._links.relink_exchange_after_session_forgotten(exchange)
            await recheck()
            answer = await self.send_upstream_call_once(exchange, body, line, recheck)
        for _ in range(MAX_INPUT_ROUNDS):
            required = parse_input_required_or_none(answer[0]) if exchange.client is None else None
            if required is not None:
                exchange.is_interactive = True
            if required is None or await self.should_client_answer_required_input(
                exchange, required, answer[0]
            ):
                break
            if required.has_other_requests:  # which its client answers, and not together with people
                await recheck()
                answer = await self.send_upstream_call_once(
                    exchange, body, line, recheck, is_retry=True, with_client_capabilities_only=True
                )
                break
            responses = await self._elicitations.open_cards_and_collect_results(exchange, line, required)
            await recheck()
            retry = required.build_call_with_input_responses(body, responses)
            answer = await self.send_upstream_call_once(exchange, retry, line, recheck, is_retry=True)
        await self._tasks.record_task_owner(exchange, answer[0])
        response, event = await self._server_requests.replace_event_asking_refused_input(
            exchange, answer[0], answer[1], line
        )
        return response, event, answer[2]

    async def should_client_answer_required_input(
        self, exchange: Exchange, required: RequiredInput, response: bytes
    ) -> bool:
        """Say whether the client itself is to answer what a server asks, as far as it may be passed on."""
        if not can_client_answer_required_input(exchange, required):
            return False
        return (
            required.has_other_requests
            or not await self._server_requests.has_denied_elicitation_in_result(exchange, response)
        )

    async def send_upstream_call_once(
        self,
        exchange: Exchange,
        body: bytes,
        line: ResponseStream | None,
        recheck: PermissionRecheck,
        *,
        is_retry: bool = False,
        with_client_capabilities_only: bool = False,
    ) -> tuple[bytes, bytes | None, int]:
        """Send a call once.

        `with_client_capabilities_only`: the server may ask only what the client itself can answer.
        """
        ids = SharedCallIds.replacement_call_ids_or_none(exchange, is_retry=is_retry)
        if exchange.client is None and not with_client_capabilities_only:
            body = add_elicitation_capability_to_call(body)
        answer = await self._upstreams.send_call_with_brake_recheck(
            exchange,
            ids.replace_call_ids_for_server(body) if ids else body,
            session=find_upstream_session_id(exchange),
            recheck=recheck,
        )
        changes: dict[str, Any] = (
            {}
            if ids is None
            else {
                "number": ids.number,
                "transform": ids.restore_response_id,
                "on_message": ids.restore_progress_token,
            }
        )
        try:
            async with (
                self._elicitations.build_call_elicitations(exchange, line) as questions,
                self._server_requests.intercept_server_requests_during_block(exchange, line) as requests,
            ):

                async def take_message(data: bytes) -> bool:
                    if exchange.server.edition and is_server_request_or_unreadable(
                        data
                    ):  # its results may be cached
                        exchange.is_interactive = True
                    is_intercepted = await requests.intercept_server_message(data)
                    return is_intercepted or await questions.intercept_server_message(data)

                response, event = await relay_events_before_call_response(
                    answer,
                    exchange,
                    line,
                    follow=functools.partial(self._resuming.fetch_remaining_response, exchange),
                    take_message=take_message,
                    **changes,
                )
            return response, event, answer.status
        finally:
            answer.close()

    async def send_request_of_gateway(self, exchange: Exchange, method: str, params: dict[str, Any]) -> bytes:
        """Return the response to a question of ours in the client's place. Raises UpstreamFailed, SessionOver."""
        try:
            return await self.send_request_of_gateway_once(exchange, method, params)
        except UpstreamSessionForgotten:
            await self._links.relink_exchange_after_session_forgotten(exchange)
            return await self.send_request_of_gateway_once(exchange, method, params)

    async def send_request_of_gateway_once(
        self, exchange: Exchange, method: str, params: dict[str, Any]
    ) -> bytes:
        headers = [BOTH, ("Content-Type", "application/json")]
        if exchange.client is None:
            names = (META_VERSION, META_CLIENT, META_CAPABILITIES)
            params = params | {
                "_meta": {
                    name: exchange.message.meta[name] for name in names if name in exchange.message.meta
                }
            }
            headers += [
                ("Mcp-Protocol-Version", exchange.message.protocol_version or ""),
                ("Mcp-Method", method),
            ]
        else:
            link = exchange.client.links.get(exchange.server.name)
            headers.append(
                ("Mcp-Protocol-Version", link.protocol_version if link else exchange.client.protocol_version)
            )
        number = create_request_id()
        body = answers.encode_json_rpc_request(number, method, params)
        answer = await self._upstreams.send_message_to_server(
            exchange.server,
            headers,
            body,
            session=find_upstream_session_id(exchange),
            caller=exchange.agent_id,
        )
        try:
            return await read_response_to_gateway_request(answer, number)
        finally:
            answer.close()


@dataclass(frozen=True, slots=True)
class SharedCallIds:
    """A call's id in the session that its client shares with others, and the client's own id and progress token."""

    number: str
    own: Any
    token: Any

    @classmethod
    def replacement_call_ids_or_none(
        cls, exchange: Exchange, *, is_retry: bool = False
    ) -> SharedCallIds | None:
        """Return new ids for a call; None where its client has the session for itself, or there is none.

        A call that goes on with answers is a request of its own, with another id than the first.
        """
        is_shared = exchange.client is not None and exchange.message.is_stateless
        if not is_shared and not is_retry:
            return None
        return cls(create_request_id(), exchange.message.id, exchange.message.progress_token)

    def replace_call_ids_for_server(self, body: bytes) -> bytes:
        """Return a call as its server gets it."""
        fields = _fields(body) | {"id": encode_raw_json(self.number)}
        if self.token is not None:
            params = _fields(fields["params"])
            meta = _fields(params["_meta"]) | {"progressToken": encode_raw_json(self.number)}
            fields["params"] = encode_raw_json(params | {"_meta": encode_raw_json(meta)})
        return _encode(fields)

    async def restore_response_id(self, response: bytes) -> bytes:
        """Return the response as its client gets it."""
        return _encode(_fields(response) | {"id": encode_raw_json(self.own)})

    def restore_progress_token(self, event: bytes) -> bytes:
        """Return what comes before the response as its client gets it: progress under the client's own token."""
        data = sse.extract_event_data_or_empty(event)
        if self.token is None or self.number.encode() not in data:
            return event
        try:
            fields = _fields(data)
            params = _fields(fields["params"])
            if msgspec.json.decode(params["progressToken"]) != self.number:
                return event
        except (msgspec.MsgspecError, KeyError):
            return event
        params["progressToken"] = encode_raw_json(self.token)
        return sse.replace_event_data(event, _encode(fields | {"params": encode_raw_json(params)}))


def can_client_answer_required_input(exchange: Exchange, required: RequiredInput) -> bool:
    """Say whether the client answers itself what a server asks: it says that it can, or nothing else is asked."""
    capabilities = exchange.message.stateless_client_capabilities
    return not required.questions or all(
        can_client_present_elicitation(capabilities, mode) for mode in required.modes
    )


def encode_raw_json(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def create_request_id() -> str:
    return f"signalbox-{uuid.uuid4().hex}"


def find_upstream_session_id(exchange: Exchange) -> str | None:
    link = exchange.client.links.get(exchange.server.name) if exchange.client else None
    return link.upstream_session if link else None
