"""Requests of servers that wait for a person while the client on whose stream they came can be reached."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import msgspec
from django.db import DatabaseError
from django.utils import timezone

from coordinator.actions.mcp import server_request_approvals as approvals
from coordinator.actions.mcp.elicitations import build_elicitation_key
from coordinator.actions.mcp.gateway_calls import approval_url
from coordinator.actions.mcp.server_request_approvals import ServerRequestQuestion
from coordinator.edge.gateway.elicitations import ElicitationHandler
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.keep_alive import ClientKeepAlive
from coordinator.edge.gateway.records import CallRecord, CallRecords
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.polling.waits import LongPollWaiters
from coordinator.errors import SignalboxError
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway.server_requests import ServerRequest
from coordinator.models import PermissionRequest
from coordinator.policy.requests import approvals as rules
from coordinator.policy.rules.tool_rules import Ruling

log = logging.getLogger(__name__)

NOT_IN_TIME = "Nobody approved it in time."
STREAM_OVER = "The stream on which it was asked has ended."
ASKING_FAILED = "People could not be asked."


@dataclass(frozen=True, slots=True)
class OpenServerRequest:
    """A request that is put before people."""

    pk: int
    request_id: str
    link: str  # of its card


class ServerRequestApprovals:
    """One a process."""

    def __init__(
        self,
        waits: LongPollWaiters,
        threads: EdgeThreads,
        records: CallRecords,
        elicitations: ElicitationHandler,
    ) -> None:
        self._waits = waits
        self._threads = threads
        self._records = records
        self._elicitations = elicitations
        self._keep_alive = ClientKeepAlive()

    async def await_refusal_reason_or_empty(
        self,
        exchange: Exchange,
        line: ResponseStream | None,
        request: ServerRequest,
        ruling: Ruling,
        *,
        record: CallRecord,
        patience: float,
    ) -> str:
        """Have a person decide about a request; return why it may not pass, or nothing where it may, once.

        Closes the card, however that ends.
        """
        question = await self.build_question(exchange, request, record)
        try:
            card = await self._elicitations.await_opened_card_or_withdraw(
                exchange, self.create_server_request_card(question, ruling, patience), STREAM_OVER
            )
        except (SignalboxError, DatabaseError) as problem:
            log.warning("A request of %s could not be asked about: %s", exchange.server.name, problem)
            return ASKING_FAILED
        reason, is_decided = STREAM_OVER, False
        try:
            with exchange.call_timeouts.extend_timeouts_during_block(patience):
                row = await self.wait_for_decision(exchange, line, card, patience)
            is_decided = row is not None
            if exchange.disconnect.happened and line is not None:
                return STREAM_OVER
            if row is None:
                reason = NOT_IN_TIME
                return reason
            record.decided_by = f"{row.status} by {row.approved_by or 'somebody'}"
            return await self._threads.run_in_thread(
                approvals.consume_server_approval_or_explain,
                question,
                ruling,
                card.request_id,
                timezone.now(),
            )
        except (SignalboxError, DatabaseError) as problem:
            log.warning("A request of %s could not wait: %s", exchange.server.name, problem)
            reason = ASKING_FAILED
            return reason
        finally:
            if not is_decided:
                self._elicitations.run_in_background(
                    self._elicitations.withdraw_elicitation_request(exchange, card.request_id, reason)
                )

    async def build_question(
        self, exchange: Exchange, request: ServerRequest, record: CallRecord
    ) -> ServerRequestQuestion:
        link = exchange.client.links.get(exchange.server.name) if exchange.client else None
        return ServerRequestQuestion(
            key=build_elicitation_key(
                exchange.client.session_id if exchange.client else record.call_id,
                exchange.server.name,
                link.upstream_session if link else None,
                request.number,
            ),
            server=exchange.server,
            method=request.method,
            params=request.params,
            shown_params=request.build_rule_arguments(exchange.server.name),
            raw_params=msgspec.json.encode(request.params),
            call_id=record.call_id,
            within=exchange.record.call_id if exchange.record is not None else "",
            tool=exchange.called_tool_or_whole_server,
            actor=exchange.caller_key.caller_actor,
            key_id=exchange.caller_key.id,
            caller=replace(exchange.caller, session_id=record.session_id),
            session_id=record.session_id,
            event_id=await self._records.write_call_begin_returning_id(record),
            client=exchange.client_name,
        )

    async def create_server_request_card(
        self, question: ServerRequestQuestion, ruling: Ruling, patience: float
    ) -> OpenServerRequest:
        now = timezone.now()
        ask: Callable[[], PermissionRequest] = functools.partial(
            approvals.request_approval_of_server_request,
            question,
            ruling,
            until=now + timedelta(seconds=patience),
            now=now,
        )
        row = await self._threads.run_in_thread(ask)
        return OpenServerRequest(row.pk, row.request_id, approval_url(row))

    async def wait_for_decision(
        self, exchange: Exchange, line: ResponseStream | None, card: OpenServerRequest, patience: float
    ) -> PermissionRequest | None:
        """Return the request once it waits no more; None where its time is over, or its client has left."""
        if line is not None and exchange.accepts_event_stream:
            await line.open_event_stream()
        with self._keep_alive.send_keep_alives_during_block(exchange, f"Waits for approval: {card.link}"):
            return await self._waits.wait_until(
                functools.partial(find_request_if_decided, card.request_id),
                topics=[f"permission_requests:{card.pk}"],
                timeout=patience,
                still_allowed=exchange.admission.require_still_allowed,
                disconnect=exchange.disconnect if line is not None else None,
            )


def find_request_if_decided(request_id: str) -> PermissionRequest | None:
    row = rules.require_permission_request(request_id)
    return None if rules.current_request_state(row, timezone.now()).waiting else row
