"""Forwarding of raw messages to a server and of its answers back, with a check that each answer is the request's own.

An answer is parsed only to find whose response an event is. A response with an id that was not sent is ignored.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from coordinator.client import sse
from coordinator.client.message_lines import BYTE_ORDER_MARK
from coordinator.edge.gateway.access_tokens import AccessTokens
from coordinator.edge.gateway.exchange import Exchange, build_upstream_headers
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.lib import fair_queue as turns
from coordinator.lib import json_bounds
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.protocol.answer_limits import AnswerByteLimits
from coordinator.mcp.protocol.http_client import (
    AnswerInterrupted,
    HttpClient,
    PermissionRecheck,
    UpstreamAnswer,
    UpstreamFailed,
)
from coordinator.mcp.servers.stdio_host import ASKER, CALLER, PROCESS_ENDED, STARTED, WHEN_READY

MOST_STARTS = 3  # of a stdio server for one call
MOST_ANSWER = 16 * 1024 * 1024
LONGEST_STREAM = 3600.0  # seconds for which a stream of events is passed on
MOST_STREAM = 256 * 1024 * 1024  # … and its bytes, where nobody asked for it: who listens asks again
BODY_WITHIN = 60.0  # seconds in which an answer in one piece must be there, once its headers are
OWN_WITHIN = 20.0  # seconds in which a question of ours must be answered once the answer's headers are there
Transform = Callable[[bytes], Awaitable[bytes]]
BOTH = ("Accept", "application/json, text/event-stream")


NOTHING = msgspec.Raw(b"")


class UnfinishedStream(UpstreamFailed):
    """The stream ended before its response, which the server sends when asked for what follows the last event.

    `by_server`: the server ended it on purpose (SEP-1699); else the connection broke.
    """

    is_fault = False

    def __init__(self, text: str, position: sse.StreamPosition, *, by_server: bool) -> None:
        super().__init__(text, may_have_run=True)
        self.place = position
        self.by_server = by_server


class UpstreamSessionForgotten(UpstreamFailed):
    """The server does not know the request's session: it has restarted. What was sent has not run."""

    is_fault = False

    def __init__(self) -> None:
        super().__init__("restarted and lost this session")


class MessageHead(msgspec.Struct):
    id: Any = None
    method: str | None = None
    result: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


_head = msgspec.json.Decoder(MessageHead).decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class UpstreamClient:
    """The way to all servers. One a process."""

    def __init__(self, threads: EdgeThreads) -> None:
        self.http = HttpClient()
        self.answers = AnswerByteLimits()
        self._tokens = AccessTokens(threads, self.http)

    async def send_call_with_brake_recheck(
        self, exchange: Exchange, body: bytes, *, session: str | None, recheck: PermissionRecheck
    ) -> UpstreamAnswer:
        """Send a call that may run, or what else a brake holds. Raises UpstreamFailed, and what `recheck` raises.

        Close the answer. A server that has to be started first, or connected to for a moment, gets the call only once
        `recheck` has found, after that wait, that it still may.
        """
        for _ in range(MOST_STARTS):
            answer = await self.send_client_message(
                exchange, body, session=session, when_ready=True, recheck=recheck
            )
            if answer.status != STARTED or not exchange.server.is_stdio:
                return answer
            answer.close()
            await recheck()
        raise UpstreamFailed("ends as soon as it is started")

    async def send_client_message(
        self,
        exchange: Exchange,
        body: bytes,
        *,
        session: str | None,
        method: str = "POST",
        when_ready: bool = False,
        recheck: PermissionRecheck | None = None,
    ) -> UpstreamAnswer:
        """Send a client's message to its server. Raises UpstreamFailed, and what `recheck` raises. Close the answer."""
        passed = build_upstream_headers(exchange, method)
        passed_headers = [(name.decode(), value.decode("latin-1")) for name, value in passed.items()]
        if method == "POST":
            passed_headers.append(("Content-Type", "application/json"))
        link = exchange.client.links.get(exchange.server.name) if exchange.client else None
        if (
            link is not None and exchange.message.is_stateless
        ):  # the server speaks an older version than its caller
            passed_headers = [
                pair
                for pair in passed_headers
                if pair[0] not in {"mcp-protocol-version", "mcp-method", "mcp-name"}
            ]
            passed_headers.append(("Mcp-Protocol-Version", link.protocol_version))
        if when_ready and exchange.server.is_stdio:
            passed_headers.append((WHEN_READY, "1"))
        return await self.send_message_to_server(
            exchange.server,
            passed_headers,
            body,
            session=session,
            caller=exchange.agent_id,
            method=method,
            recheck=recheck,
            within=exchange.call_seconds,
            person=exchange.person,
        )

    async def send_message_to_server(
        self,
        server: UpstreamServer,
        headers: list[tuple[str, str]],
        body: bytes,
        *,
        session: str | None,
        caller: str,
        method: str = "POST",
        recheck: PermissionRecheck | None = None,
        within: int | None = None,
        person: int | None = None,
    ) -> UpstreamAnswer:
        """Send a message with what the server is given. Raises UpstreamFailed, also for a refusal of ours, and what
        `recheck` raises.

        `person` is the user whose own message it is, and no agent's.
        """
        if server.target is None:
            raise UpstreamFailed(server.failure)
        all_headers = [*headers, *server.headers]
        if session is not None:
            all_headers.append(("Mcp-Session-Id", session))
        if server.is_stdio:
            # A digest: names of agents may hold letters that no header has, and would be taken for one another.
            all_headers.append((CALLER, hash_agent_id_for_stdio(caller) if server.for_each_caller else "all"))
            all_headers.append((ASKER, hash_agent_id_for_stdio(caller)))
        if server.needs_token:
            answer = await self.send_with_access_token_retry(
                server,
                method,
                all_headers,
                body,
                caller=caller,
                recheck=recheck,
                within=within,
                person=person,
            )
        else:
            answer = await self.http.send_http_request(
                server.target,
                method,
                all_headers,
                body,
                within=within or server.call_seconds,
                recheck=recheck,
            )
        answer.share = self.answers.create_answer_reservation(turns.CALLER.get(), server.name)
        if answer.status in {401, 403, 407}:
            answer.close()
            raise UpstreamFailed(
                f"rejected Signalbox's credentials ({answer.status}); an admin must renew them"
            )
        if answer.status == 503 and server.is_stdio:
            host_problem = await read_stdio_host_error(answer)
            answer.close()
            raise UpstreamFailed(f"does not run: {host_problem}")
        if session is not None and await detect_unknown_upstream_session(answer):
            answer.close()
            raise UpstreamSessionForgotten
        if 300 <= answer.status < 400:
            answer.close()
            raise UpstreamFailed(
                "points to another address, which is not followed; an admin must correct its address",
                may_have_run=True,  # 303 is what some answer once they have done what they were asked
            )
        return answer

    async def send_with_access_token_retry(
        self,
        server: UpstreamServer,
        method: str,
        headers: list[tuple[str, str]],
        body: bytes,
        *,
        caller: str,
        recheck: PermissionRecheck | None,
        within: int | None = None,
        person: int | None = None,
    ) -> UpstreamAnswer:
        """Send a message with the caller's access token, and once more with a new one where the server rejects it.

        What is rejected with 401 has not run. Raises UpstreamFailed, also where a person has to sign in.
        """
        assert server.target is not None
        headers = [pair for pair in headers if pair[0].lower() != "authorization"]
        token = await self._tokens.get_or_renew_access_token(server, caller, person=person)
        for is_last in (False, True):
            if recheck is not None:
                await recheck()  # finding a token may have taken its time
            answer = await self.http.send_http_request(
                server.target,
                method,
                [*headers, ("Authorization", f"Bearer {token.access_token}")],
                body,
                within=within or server.call_seconds,
                recheck=recheck,
            )
            if answer.status == 403:
                await self._tokens.record_missing_scope_if_reported(token, answer)
            if answer.status != 401:
                break
            answer.close()
            if is_last:
                await self._tokens.record_token_requiring_sign_in(token)
                raise UpstreamFailed("rejected a new access token; a person must sign in again on its page")
            token = await self._tokens.get_or_renew_access_token(
                server, caller, rejected=token.access_token, person=person
            )
        return answer


def hash_agent_id_for_stdio(agent_id: str) -> str:
    """Return the hash that identifies an agent to the host of stdio servers."""
    return hashlib.sha256(agent_id.encode(errors="surrogatepass")).hexdigest()


async def detect_unknown_upstream_session(answer: UpstreamAnswer) -> bool:
    """Say whether a message was refused because the server does not know its session.

    That is 404. Many servers (those made with the official Python package before 2026, and from the TypeScript one's
    examples) say 400 and these words.
    """
    if answer.status != 400 or answer.media_type == "text/event-stream":
        return answer.status == 404
    return b"no valid session id" in (await read_upstream_response_body(answer, MOST_ANSWER)).lower()


async def read_stdio_host_error(answer: UpstreamAnswer) -> str:
    """Return what the keeper of stdio servers says is wrong."""
    try:
        detail = msgspec.json.decode(await answer.read_whole_body(64 * 1024))["detail"]
    except (UpstreamFailed, msgspec.MsgspecError, KeyError, TypeError):
        return "it cannot be started"
    return str(detail).rstrip(".")[:1_000]


def is_response_to_request_id(body: bytes, number: Any) -> bool:
    """Say whether a message is the response to this number; what is no response is not."""
    try:
        json_bounds.require_json_bounds(body)
        head = _head(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
        return False
    is_response = head.method is None and (head.result != NOTHING or head.error != NOTHING)
    same = head.id == number and isinstance(head.id, str) == isinstance(number, str) and head.id is not True
    # An error to a message that the server could not read has no number.
    return is_response and (same or (head.id is None and head.error != NOTHING))


def match_response_to_request_id(body: bytes, number: Any) -> bytes | None:
    """Return the response to this number, without lone surrogates, which cannot be read; None for what is none."""
    if is_response_to_request_id(body, number):
        return body
    readable_body = json_bounds.replace_lone_surrogates(body)
    return (
        readable_body if readable_body != body and is_response_to_request_id(readable_body, number) else None
    )


def is_jsonrpc_response_or_unreadable(body: bytes) -> bool:
    """Say whether a message is a response at all, or cannot be read, and so must not pass as something else."""
    try:
        head = _head(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True
    return head.method is None


def is_server_request_or_unreadable(message: bytes) -> bool:
    """Say whether a message asks its client something, or may: what cannot be read is taken for a request."""
    try:
        head = _head(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True
    return head.method is not None and head.id is not None


async def iterate_upstream_sse_events(answer: UpstreamAnswer, most: float = math.inf) -> AsyncIterator[bytes]:
    """Yield an answer's events. Raises UpstreamFailed, also where the stream goes on for too long, or is too much."""
    splitter, taken_bytes = sse.EventSplitter(), 0
    pieces = answer.iterate_body()
    ends = asyncio.get_running_loop().time() + LONGEST_STREAM
    while True:
        try:
            async with asyncio.timeout_at(ends):
                piece = await anext(pieces, None)
        except TimeoutError:
            failure_text = f"streamed for more than {LONGEST_STREAM:.0f} seconds"
            raise UpstreamFailed(failure_text, may_have_run=True) from None
        if piece is None:
            return
        taken_bytes += len(piece)
        if taken_bytes > most:
            raise UpstreamFailed(f"streamed more than {most:.0f} bytes", may_have_run=True)
        try:
            answer.reserve_answer_bytes(len(piece))
            for event in splitter.feed(piece):
                yield event
                answer.share.release_answer_bytes(len(event))
        except sse.EventTooLong as problem:
            raise UpstreamFailed(f"sent {problem}", may_have_run=True) from None


async def read_upstream_response_body(
    answer: UpstreamAnswer, most: int, within: float = BODY_WITHIN
) -> bytes:
    """Return the body of an answer in one piece. Raises UpstreamFailed where it is too long, or too slow."""
    try:
        async with asyncio.timeout(within):
            return await answer.read_whole_body(most)
    except TimeoutError:
        failure_text = f"did not end its answer within {within:.0f} seconds"
        raise UpstreamFailed(failure_text, may_have_run=True) from None


async def relay_events_before_response(
    answer: UpstreamAnswer,
    number: Any,
    line: ResponseStream | None,
    *,
    transform: Transform | None = None,
    on_message: Callable[[bytes], bytes] | None = None,
    take_message: Callable[[bytes], Awaitable[bool]] | None = None,
    within: float = BODY_WITHIN,
    position: sse.StreamPosition | None = None,
) -> tuple[bytes, bytes | None]:
    """Pass on what comes before the response; return the response, and the event in which it came if in one.

    `transform` changes the response, `on_message` the events before it. One that `take_message` takes is not passed
    on. `within`: seconds for a response in one piece. `position` is how far an earlier stream of the same was read.
    Raises UpstreamFailed where none comes.
    """
    if answer.media_type != "text/event-stream":
        body = await read_upstream_response_body(answer, MOST_ANSWER, within)
        response = match_response_to_request_id(body.removeprefix(BYTE_ORDER_MARK), number)
        if response is None:
            failure_text = "sent an answer that does not match the request" if body else "gave no answer"
            raise UpstreamFailed(f"{failure_text} ({answer.status})", may_have_run=True)
        response = add_missing_response_id(response, number)
        return (await transform(response) if transform else response), None
    position = position or sse.StreamPosition()
    try:
        async for event in iterate_upstream_sse_events(answer):
            position.update_position_from_event(event)
            data = sse.extract_event_data_or_empty(event)
            response = match_response_to_request_id(data, number) if data else None
            if response is not None:
                numbered_data = add_missing_response_id(response, number)
                changed = await transform(numbered_data) if transform else numbered_data
                return changed, event if changed is data else sse.replace_event_data(event, changed)
            if take_message is not None and data and await take_message(data):
                continue
            if line is not None and not (data and is_jsonrpc_response_or_unreadable(data)):
                await line.open_event_stream()
                await line.send_event(on_message(event) if on_message else event)
    except AnswerInterrupted as problem:
        if not position.last_id:
            raise
        raise UnfinishedStream(str(problem), position, by_server=False) from None
    failure_text = "ended its answer without a response"
    if not position.last_id:
        raise UpstreamFailed(failure_text, may_have_run=True)
    raise UnfinishedStream(failure_text, position, by_server=True)


def add_missing_response_id(response: bytes, number: Any) -> bytes:
    """Return a response that names no request, which its client could not place, as the answer to this one."""
    if _head(response).id is not None:
        return response
    return _encode(_fields(response) | {"id": msgspec.Raw(_encode(number))})


async def read_response_to_gateway_request(answer: UpstreamAnswer, number: str) -> bytes:
    """Return the response to a request of ours. Raises UpstreamFailed where it does not come soon."""
    try:
        async with asyncio.timeout(OWN_WITHIN):
            response, _ = await relay_events_before_response(answer, number, None)
    except TimeoutError:
        raise UpstreamFailed(f"did not answer within {OWN_WITHIN:.0f} seconds", may_have_run=True) from None
    return response


async def relay_events_before_call_response(
    answer: UpstreamAnswer,
    exchange: Exchange,
    line: ResponseStream | None,
    *,
    number: Any = None,
    follow: Callable[..., Awaitable[tuple[bytes, bytes | None]]] | None = None,
    **changes: Any,
) -> tuple[bytes, bytes | None]:
    """Return the response to a call as `relay_events_before_response` does, within the server's time for a call.

    `number` is the call's id at the server, where that is not its client's. `follow` gets the response of a stream
    that ended before it.
    """
    number = exchange.message.id if number is None else number
    try:
        async with exchange.call_timeouts.enforce_timeout_during_block(exchange.call_seconds):
            try:
                response, event = await relay_events_before_response(
                    answer, number, line, within=float(exchange.call_seconds), **changes
                )
            except UnfinishedStream as left_open:
                if follow is None:
                    raise
                return await follow(left_open, number, line, **changes)
            if exchange.server.is_stdio:
                raise_for_process_ended_response(response)
            return response, event
    except TimeoutError:
        failure_text = f"did not answer within {exchange.call_seconds} seconds"
        raise UpstreamFailed(failure_text, may_have_run=True) from None


def raise_for_process_ended_response(response: bytes) -> None:
    """Raise UpstreamFailed for a response that the host of stdio servers gives where the server's process ended."""
    if PROCESS_ENDED.encode() not in response:
        return
    try:
        error = msgspec.json.decode(response).get("error")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, AttributeError):
        return
    if isinstance(error, dict) and error.get("data") == {PROCESS_ENDED: True}:
        text = str(error.get("message", "")).removeprefix("The server ").rstrip(".")
        raise UpstreamFailed(text or "has ended", may_have_run=True)


async def send_final_response_to_client(
    line: ResponseStream, body: bytes, event: bytes | None, status: int = 200
) -> None:
    """Hand over a response: in the event in which it came, or as it came."""
    if event is None or line.is_over:
        await line.send_answer(body, status)
        return
    await line.open_event_stream()
    await line.send_event(event)
    await line.end_event_stream()
