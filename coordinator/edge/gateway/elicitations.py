"""Questions of servers during a call, answered by people in Signalbox or by the client's own user.

The worker with the call's connection to the server makes the card, waits for its decision and sends the answer. Card
and decision are stored in the database, so any worker may receive either. Whatever else ends the wait (the client's
timeout, the end of the call, a revoked key, a failure) cancels the question and never accepts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from django.db import DatabaseError
from django.utils import timezone

from coordinator.actions.approvals.pending_calls import pending_call_lifetime
from coordinator.actions.mcp import elicitations
from coordinator.actions.mcp.elicitations import (
    ACCEPT,
    CANCEL,
    DECLINE,
    ClientAnswer,
    ElicitationRequest,
    ElicitationResult,
    OpenElicitation,
)
from coordinator.client import sse
from coordinator.edge.gateway.client_wait_limits import max_client_wait_seconds
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.freshness import FreshnessCheck
from coordinator.edge.gateway.keep_alive import ClientKeepAlive
from coordinator.edge.gateway.open_questions import OpenQuestions
from coordinator.edge.gateway.records import CallRecords
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.upstreams import BOTH, UpstreamClient
from coordinator.edge.polling.waits import LongPollWaiters
from coordinator.errors import SignalboxError
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers, elicitation
from coordinator.mcp.gateway.elicitation import MAX_QUESTIONS_AT_ONCE, RequiredInput, ServerElicitation
from coordinator.mcp.protocol.http_client import UpstreamFailed
from coordinator.mcp.protocol.messages import INVALID_PARAMS, McpMessage
from coordinator.policy.limits.brakes import ActiveBrake

log = logging.getLogger(__name__)

LONGEST_WAIT = 2_700.0  # seconds: a stream of a server is passed on for an hour in all
MAX_QUESTIONS = 20  # of one call, one after the other
UNANSWERABLE = "The question has a form that MCP does not allow, or that is too large for a person to read."
CALL_OVER = "The call in whose middle it was asked has ended."
TAKEN_BACK = "The server needs no answer any more."
NOT_IN_TIME = "Nobody answered in time."
FAILED = "The question could not be kept open."
ANSWERED_HERE = "Answered in Signalbox."


class OpenPermissionRequest(Protocol):
    """What is put before people."""

    @property
    def request_id(self) -> str:
        """The id of its request."""


Card = TypeVar("Card", bound=OpenPermissionRequest | None)


class ElicitationHandler:
    """One a process."""

    def __init__(
        self,
        waits: LongPollWaiters,
        threads: EdgeThreads,
        records: CallRecords,
        upstreams: UpstreamClient,
        *,
        instant: FreshnessCheck,
    ) -> None:
        self._instant = instant
        self._waits = waits
        self._threads = threads
        self._records = records
        self._upstreams = upstreams
        self._keep_alive = ClientKeepAlive()
        self._closing: set[asyncio.Task[None]] = set()

    def build_call_elicitations(self, exchange: Exchange, line: ResponseStream | None) -> CallElicitations:
        """Return what takes in the questions of one call, as long as its block lasts."""
        return CallElicitations(self, exchange, line)

    async def find_brake(self, exchange: Exchange) -> ActiveBrake | None:
        """Return the brake that is on for the agent at this instant; None where none is."""
        _, brake = await self._instant.get_policy_freshness_and_brake(exchange.agent_names_for_brakes)
        return brake

    async def close_elicitation_and_decide_forwarding(
        self, exchange: Exchange, server_id: str, message: McpMessage
    ) -> bool:
        """Say whether a client's response goes on to its server; one to a question closes the card before that."""
        if exchange.client is None:
            return True
        link = exchange.client.links.get(server_id)
        key = elicitations.build_elicitation_key(
            exchange.client.session_id, server_id, link.upstream_session if link else None, message.id
        )
        settle = functools.partial(
            elicitations.close_elicitation_on_client_answer,
            key,
            message.value.get("result"),
            exchange.caller_key.caller_actor,
            timezone.now(),
        )
        return await self._threads.run_in_thread(settle) in {ClientAnswer.UNKNOWN, ClientAnswer.FIRST}

    async def open_elicitation_card(
        self, exchange: Exchange, line: ResponseStream | None, params: dict[str, Any], number: Any
    ) -> OpenElicitation | None:
        """Put a question before people; None where a rule denies that. Raises SignalboxError and DatabaseError."""
        record = exchange.record
        event_id = await self._records.write_call_begin_returning_id(record) if record is not None else None
        link = exchange.client.links.get(exchange.server.name) if exchange.client else None
        now = timezone.now()
        request = ElicitationRequest(
            key=elicitations.build_elicitation_key(
                exchange.client.session_id if exchange.client else exchange.admission.caller.name,
                exchange.server.name,
                link.upstream_session if link else None,
                number,
            ),
            server=exchange.server,
            params=params,
            tool=exchange.message.target_name or "",
            call_id=record.call_id if record is not None else "",
            timeline_call_id=record.timeline_call_id if record is not None else "",
            actor=exchange.caller_key.caller_actor,
            caller=exchange.caller,
            session_id=record.session_id if record is not None else None,
            event_id=event_id,
            client=exchange.client_name,
        )
        opening = self._threads.run_in_thread(
            elicitations.open_elicitation_unless_denied,
            request,
            until=now + timedelta(seconds=elicitation_wait_seconds(exchange, line)),
            now=now,
        )
        return await self.await_opened_card_or_withdraw(exchange, opening, CALL_OVER)

    async def await_opened_card_or_withdraw(
        self, exchange: Exchange, opening: Coroutine[Any, Any, Card], reason: str
    ) -> Card:
        """Return the card that `opening` makes. A caller that is cancelled meanwhile leaves no waiting card."""
        opened = asyncio.ensure_future(opening)
        try:
            return await asyncio.shield(opened)
        except asyncio.CancelledError:
            self.run_in_background(self.withdraw_request_once_opened(exchange, opened, reason))
            raise

    async def withdraw_request_once_opened(
        self, exchange: Exchange, opened: asyncio.Future[Card], reason: str
    ) -> None:
        """Close a card that is being made for nobody."""
        with contextlib.suppress(SignalboxError, DatabaseError):
            if (card := await opened) is not None:
                await self.withdraw_elicitation_request(exchange, card.request_id, reason)

    async def await_elicitation_result_and_close(
        self,
        exchange: Exchange,
        line: ResponseStream | None,
        open_elicitation: OpenElicitation,
        params: dict[str, Any],
    ) -> ElicitationResult:
        """Return what the server is sent, empty where its client answers it. Closes the card, however that ends."""
        reason, patience, is_decided = CALL_OVER, elicitation_wait_seconds(exchange, line), False
        ends_at = asyncio.get_running_loop().time() + patience
        try:
            if line is not None and exchange.accepts_event_stream:
                await line.open_event_stream()
            with self._keep_alive.send_keep_alives_during_block(
                exchange, f"Waits for an answer: {open_elicitation.link}"
            ):
                result = await self._waits.wait_until(
                    functools.partial(find_elicitation_result_now, open_elicitation.request_id, params),
                    topics=[f"permission_requests:{open_elicitation.pk}"],
                    timeout=patience,
                    still_allowed=exchange.admission.require_still_allowed,
                )
            is_decided = result is not None
            reason = NOT_IN_TIME if asyncio.get_running_loop().time() >= ends_at else FAILED
            return {"action": CANCEL} if result is None else result
        except (SignalboxError, DatabaseError):
            reason = FAILED
            return {"action": CANCEL}
        finally:
            if not is_decided:
                self.run_in_background(
                    self.withdraw_elicitation_request(exchange, open_elicitation.request_id, reason)
                )

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done, whatever becomes of its call meanwhile."""
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def withdraw_elicitation_request(self, exchange: Exchange, request_id: str, reason: str) -> None:
        """Close a card; one that is decided stays as it is."""
        withdraw = functools.partial(
            elicitations.withdraw_elicitation,
            request_id,
            exchange.caller_key.caller_actor,
            reason,
            timezone.now(),
        )
        try:
            await self._threads.run_in_thread(withdraw)
        except DatabaseError:
            log.exception("The card of %s could not be closed; it expires at its deadline.", request_id)

    async def delete_sent_elicitation_secrets(self, open_elicitation: OpenElicitation) -> None:
        try:
            await self._threads.run_in_thread(
                elicitations.delete_sent_elicitation_secrets, open_elicitation.request_id
            )
        except DatabaseError:
            log.exception("The sealed answer of %s could not be removed.", open_elicitation.request_id)

    async def send_elicitation_response(self, exchange: Exchange, number: Any, **response: Any) -> None:
        """Send the server the response to its request. Raises UpstreamFailed."""
        link = exchange.client.links.get(exchange.server.name) if exchange.client else None
        headers = [BOTH, ("Content-Type", "application/json")]
        if link is not None:
            headers.append(("Mcp-Protocol-Version", link.protocol_version))
        body = json.dumps({"jsonrpc": "2.0", "id": number, **response}).encode()
        answer = await self._upstreams.send_message_to_server(
            exchange.server,
            headers,
            body,
            session=link.upstream_session if link else None,
            caller=exchange.agent_id,
        )
        answer.close()

    async def open_cards_and_collect_results(
        self, exchange: Exchange, line: ResponseStream | None, required: RequiredInput
    ) -> dict[str, ElicitationResult]:
        """Return people's answers to the questions in the result of a call."""
        with exchange.call_timeouts.extend_timeouts_during_block(elicitation_wait_seconds(exchange, line)):
            results = await asyncio.gather(
                *(
                    self.open_card_and_await_result(exchange, line, name, params)
                    for name, params in required.questions.items()
                )
            )
        return dict(zip(required.questions, results, strict=True))

    async def open_card_and_await_result(
        self, exchange: Exchange, line: ResponseStream | None, name: str, params: dict[str, Any] | None
    ) -> ElicitationResult:
        if params is None:
            return {"action": DECLINE}
        try:
            open_elicitation = await self.open_elicitation_card(
                exchange, line, params, f"{name} {timezone.now().timestamp()}"
            )
        except (SignalboxError, DatabaseError) as problem:
            log.warning("A question of %s could not be asked: %s", exchange.server.name, problem)
            return {"action": CANCEL}
        if open_elicitation is None:
            return {"action": DECLINE}
        result = await self.await_elicitation_result_and_close(exchange, line, open_elicitation, params)
        self.run_in_background(self.delete_sent_elicitation_secrets(open_elicitation))
        return result or {"action": CANCEL}


class CallElicitations(OpenQuestions):
    """The questions that one call's server has asked on its line, until the call ends."""

    def __init__(self, handler: ElicitationHandler, exchange: Exchange, line: ResponseStream | None) -> None:
        super().__init__()
        self._handler = handler
        self._exchange = exchange
        self._line = line
        self._count = 0

    async def intercept_server_message(self, data: bytes) -> bool:
        """Take in what a server sends before its response; say whether its client is not to receive it."""
        server_elicitation = elicitation.parse_server_elicitation_or_none(data)
        if server_elicitation is not None:
            return await self.intercept_elicitation(server_elicitation)
        number = elicitation.cancelled_request_id_or_none(data)
        if number is not None:
            self.cancel_question(number, TAKEN_BACK)
        return False

    async def intercept_elicitation(self, server_elicitation: ServerElicitation) -> bool:
        is_forwarded = self.can_client_show_elicitation(server_elicitation.mode)
        self._count += 1
        is_too_many = self._count > MAX_QUESTIONS or self.open_count >= MAX_QUESTIONS_AT_ONCE
        if server_elicitation.params is None or is_too_many or self.is_open(server_elicitation.number):
            if not is_forwarded:
                await self.send_elicitation_cancel_or_error(server_elicitation)
            return not is_forwarded
        try:
            open_elicitation = await self._handler.open_elicitation_card(
                self._exchange, self._line, server_elicitation.params, server_elicitation.number
            )
        except (SignalboxError, DatabaseError) as problem:
            log.warning("A question of %s could not be asked: %s", self._exchange.server.name, problem)
            if not is_forwarded:
                await self.send_elicitation_response_or_log(
                    server_elicitation.number, result={"action": CANCEL}
                )
            return not is_forwarded
        if open_elicitation is None:
            await self.send_elicitation_response_or_log(server_elicitation.number, result={"action": DECLINE})
            return True
        is_forwarded = is_forwarded and open_elicitation.is_findable
        answering = self.await_and_send_elicitation_answer(server_elicitation, open_elicitation, is_forwarded)
        self.start_question_job(server_elicitation.number, answering)
        return not is_forwarded

    def can_client_show_elicitation(self, mode: str) -> bool:
        """Say whether the call's client can put the question to its own person, and send the answer on."""
        exchange = self._exchange
        if exchange.client is None or exchange.message.is_stateless or self._line is None:
            return False
        return not exchange.disconnect.happened and elicitation.can_client_present_elicitation(
            exchange.client.capabilities, mode
        )

    async def send_elicitation_cancel_or_error(self, server_elicitation: ServerElicitation) -> None:
        if server_elicitation.params is None:
            await self.send_elicitation_response_or_log(
                server_elicitation.number, error={"code": INVALID_PARAMS, "message": UNANSWERABLE}
            )
        else:
            await self.send_elicitation_response_or_log(server_elicitation.number, result={"action": CANCEL})

    async def await_and_send_elicitation_answer(
        self, server_elicitation: ServerElicitation, open_elicitation: OpenElicitation, is_forwarded: bool
    ) -> None:
        """Wait for the answer and send it; a call that ends meanwhile cancels the question."""
        assert server_elicitation.params is not None
        result: ElicitationResult = {"action": CANCEL}
        try:
            with self._exchange.call_timeouts.extend_timeouts_during_block(
                elicitation_wait_seconds(self._exchange, self._line)
            ):
                result = await self._handler.await_elicitation_result_and_close(
                    self._exchange, self._line, open_elicitation, server_elicitation.params
                )
            if result.get("action") == ACCEPT and await self.is_braked():
                result = {"action": CANCEL}
        finally:
            if result:
                if is_forwarded and self._line is not None:
                    taken_back = {"requestId": server_elicitation.number, "reason": ANSWERED_HERE}
                    await self._line.send_event_ignoring_disconnect(
                        sse.build_sse_message_event(
                            answers.encode_notification(elicitation.CANCELLED, taken_back)
                        )
                    )
                await self.send_elicitation_response_or_log(server_elicitation.number, result=result)
                self._handler.run_in_background(
                    self._handler.delete_sent_elicitation_secrets(open_elicitation)
                )

    async def is_braked(self) -> bool:
        """Say whether a brake is on for the agent; where that cannot be found out, it is."""
        try:
            return await self._handler.find_brake(self._exchange) is not None
        except (SignalboxError, DatabaseError):
            return True

    async def send_elicitation_response_or_log(self, number: Any, **response: Any) -> None:
        try:
            await self._handler.send_elicitation_response(self._exchange, number, **response)
        except UpstreamFailed as problem:
            log.warning(
                "The answer to a question of %s was not sent: it %s", self._exchange.server.name, problem
            )


def elicitation_wait_seconds(exchange: Exchange, line: ResponseStream | None) -> float:
    """Return for how many seconds a question can be kept open: as long as its client waits for the call."""
    limit = pending_call_lifetime().total_seconds() if line is None else max_client_wait_seconds(exchange)
    return min(LONGEST_WAIT, limit)


def find_elicitation_result_now(request_id: str, params: dict[str, Any]) -> ElicitationResult | None:
    return elicitations.find_elicitation_result(request_id, params, timezone.now())
