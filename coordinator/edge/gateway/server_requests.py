"""Requests of servers to their clients (sampling, elicitation, roots), subject to rules, grants, budgets and the brake.

A request that may not pass never reaches the client: its server is answered in the client's place. Where policy asks, a
person is asked, and the request is held back until they approve it. A failure to find out refuses it, too.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from dataclasses import dataclass, replace

from django.db import DatabaseError
from django.utils import timezone

from coordinator.actions.mcp.elicitations import CANCEL, DECLINE
from coordinator.client import sse
from coordinator.edge.gateway.audited_refusals import RefusalAudit
from coordinator.edge.gateway.elicitations import LONGEST_WAIT, ElicitationHandler, elicitation_wait_seconds
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.freshness import FreshnessCheck
from coordinator.edge.gateway.open_questions import OpenQuestions
from coordinator.edge.gateway.records import CallRecord, CallRecords
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.server_request_approvals import ServerRequestApprovals
from coordinator.edge.http.bodies import SLOW_TO_DECODE
from coordinator.edge.policy.policy_cache import PolicyCache
from coordinator.edge.policy.rulings import PolicyRulings
from coordinator.errors import Forbidden, SignalboxError
from coordinator.lib.expiring_cache import ExpiringCache
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway.elicitation import MAX_QUESTIONS_AT_ONCE, cancelled_request_id_or_none
from coordinator.mcp.gateway.server_requests import (
    ASKABLE,
    UNREADABLE,
    ServerRequest,
    can_client_answer_server_request,
    find_server_requests_in_response,
    parse_server_request_or_none,
    rebuild_input_required_or_none,
)
from coordinator.mcp.protocol.http_client import UpstreamFailed
from coordinator.mcp.protocol.messages import BRAKED, DENIED
from coordinator.policy.limits.brakes import ActiveBrake
from coordinator.policy.requests.questions import ELICITATION
from coordinator.policy.rules.tool_rules import ASK, DENY, Ruling, stricter_ruling

log = logging.getLogger(__name__)

RECORDED_EVERY = 60.0  # seconds, for requests that pass
MOST_RECORDED = 20_000
REJECTED = -1  # the code of a refusal of sampling, as MCP has it
NOT_ASKABLE = "Signalbox asks nobody about this request."
NOT_ASKABLE_LOCAL = "Signalbox asks nobody about requests of servers beside their agents."
NOT_OFFERED = (
    "A person would have to approve it, and the agent's client does not say that it answers such requests."
)
TOO_MANY = "Too many requests of this server wait for people."
TWO_MEANINGS = "It can be read in two ways."
CALL_OVER = "The stream on which it was asked has ended."
MAX_REQUESTS = 20  # of one stream about which people are asked, one after the other
NOBODY_ANSWERS = "A person tries the tool on a page, where nobody answers its server."
NOT_JUDGED = "What policy says of it could not be found out."


@dataclass(frozen=True, slots=True)
class ServerRequestRefusal:
    """Why a request of a server does not reach its client. `brake` is the one that stops it."""

    request: ServerRequest
    reason: str
    by: str
    brake: ActiveBrake | None = None

    def describe_server_request_refusal(self, server_id: str) -> str:
        """Return the refusal in words, for the server or the client."""
        return f"Denied: {self.request.method} of the server {server_id} was not passed on. {self.reason}"


class ServerRequestGate:
    """One a process."""

    def __init__(
        self,
        *,
        rulings: PolicyRulings,
        policies: PolicyCache,
        instant: FreshnessCheck,
        threads: EdgeThreads,
        records: CallRecords,
        refusals: RefusalAudit,
        elicitations: ElicitationHandler,
        approvals: ServerRequestApprovals,
    ) -> None:
        self._approvals = approvals
        self._rulings = rulings
        self._policies = policies
        self._instant = instant
        self._threads = threads
        self._records = records
        self._refusals = refusals
        self._elicitations = elicitations
        self._recorded: ExpiringCache[tuple[str, str, str], bool] = ExpiringCache(
            RECORDED_EVERY, MOST_RECORDED
        )

    def intercept_server_requests_during_block(
        self, exchange: Exchange, line: ResponseStream | None, *, is_servers_own: bool = False
    ) -> ServerRequestStream:
        """Return what takes in the requests of a server on one stream, as long as its block lasts.

        `is_servers_own`: the stream answers nothing that the client waits for.
        """
        return ServerRequestStream(self, exchange, line, is_servers_own=is_servers_own)

    async def report_refusal_to_server(self, exchange: Exchange, refusal: ServerRequestRefusal) -> None:
        request = refusal.request
        try:
            if request.method == ELICITATION:
                action = {"action": CANCEL if refusal.brake else DECLINE}
                await self._elicitations.send_elicitation_response(exchange, request.number, result=action)
            else:
                error = {
                    "code": REJECTED,
                    "message": refusal.describe_server_request_refusal(exchange.server.name),
                }
                await self._elicitations.send_elicitation_response(exchange, request.number, error=error)
        except UpstreamFailed as problem:
            log.warning("A refusal was not sent to %s: it %s", exchange.server.name, problem)

    async def replace_response_asking_refused_input(
        self, exchange: Exchange, response: bytes, line: ResponseStream | None
    ) -> bytes:
        """Return a response, or an error in its place where it asks of the client what may not reach it.

        Where policy asks about it, that is known once a person has decided.
        """
        requests = find_server_requests_in_response(response)
        if not requests:
            return response
        questions: list[tuple[ServerRequest, Ruling]] = []
        for request in requests:
            refusal, ruling = await self.find_refusal_or_ask_ruling(exchange, request, len(response))
            if ruling is not None:
                questions.append((request, ruling))
                continue
            await self.record_server_request_or_log(exchange, request, refusal)
            if refusal is not None:
                return self.build_server_request_refusal_response(exchange, refusal)
        if not questions:
            return response
        rebuilt = rebuild_input_required_or_none(response)
        for request, ruling in questions:
            if rebuilt is None or len(questions) > MAX_QUESTIONS_AT_ONCE:
                reason = TWO_MEANINGS if rebuilt is None else TOO_MANY
                refusal = ServerRequestRefusal(request, reason, ruling.by)
                await self.record_server_request_or_log(exchange, request, refusal)
            else:
                refusal = await self.await_verdict_and_find_refusal(exchange, line, request, ruling)
            if refusal is not None:
                return self.build_server_request_refusal_response(exchange, refusal)
        assert rebuilt is not None
        return rebuilt

    def build_server_request_refusal_response(
        self, exchange: Exchange, refusal: ServerRequestRefusal
    ) -> bytes:
        code = BRAKED if refusal.brake else DENIED
        text = refusal.describe_server_request_refusal(exchange.server.name)
        return answers.encode_error_response(exchange.message.id, code, text)

    async def replace_event_asking_refused_input(
        self, exchange: Exchange, response: bytes, event: bytes | None, line: ResponseStream | None
    ) -> tuple[bytes, bytes | None]:
        """Return a response as `replace_response_asking_refused_input` does, and the event in which it came."""
        checked = await self.replace_response_asking_refused_input(exchange, response, line)
        if checked is response or event is None:
            return checked, event
        return checked, sse.replace_event_data(event, checked)

    async def has_denied_elicitation_in_result(self, exchange: Exchange, response: bytes) -> bool:
        """Say whether the result of a call asks a person something that rules deny. Records nothing."""
        for request in find_server_requests_in_response(response):
            if request.method == ELICITATION:
                ruling = await self.evaluate_server_request_policy(exchange, request, len(response))
                if ruling.decision == DENY:
                    return True
        return False

    async def refuse_client_answer_if_braked(self, exchange: Exchange) -> bool:
        """Answer a server in place of a client that answers it while a brake is on; say whether one is."""
        brake = await self._elicitations.find_brake(exchange)
        if brake is None:
            return False
        error = {"code": REJECTED, "message": f"Denied: the answer was not passed on. {brake.agent_message}"}
        try:
            await self._elicitations.send_elicitation_response(exchange, exchange.message.id, error=error)
        except UpstreamFailed as problem:
            log.warning("A refusal was not sent to %s: it %s", exchange.server.name, problem)
        return True

    async def await_verdict_and_find_refusal(
        self,
        exchange: Exchange,
        line: ResponseStream | None,
        request: ServerRequest,
        ruling: Ruling,
        *,
        patience: float | None = None,
    ) -> ServerRequestRefusal | None:
        """Have a person decide about a request; return why it may not reach the client, None where it may, once.

        `patience`: for how many seconds; without it for as long as the client waits.
        """
        if not can_client_answer_request_kind(exchange, request):
            refusal = ServerRequestRefusal(request, NOT_OFFERED, ruling.by)
            await self.record_server_request_or_log(exchange, request, refusal)
            return refusal
        reason, brake, record = NOT_JUDGED, None, None
        try:
            record = self.begin_server_request_record(
                exchange, request, await self.get_or_create_request_session_id(exchange)
            )
            record.decided_by = f"ask ({ruling.by})"
            reason = CALL_OVER
            reason = await self._approvals.await_refusal_reason_or_empty(
                exchange, line, request, ruling,
                record=record, patience=elicitation_wait_seconds(exchange, line) if patience is None else patience,
            )  # fmt: skip
            if not reason and (brake := await self._elicitations.find_brake(exchange)) is not None:
                reason = brake.agent_message
        except (SignalboxError, DatabaseError) as problem:
            log.warning("A request of %s could not be asked about: %s", exchange.server.name, problem)
            reason = NOT_JUDGED
        finally:
            refusal = ServerRequestRefusal(request, reason, ruling.by, brake)
            if record is not None:
                text = refusal.describe_server_request_refusal(exchange.server.name) if reason else None
                self._records.end_call_record(record, "denied" if reason else "ok", None, text)
        if not reason:
            return None
        await self.audit_server_refusal_or_log(exchange, refusal)
        return refusal

    async def record_and_find_local_refusal(
        self, exchange: Exchange, request: ServerRequest, size: int
    ) -> ServerRequestRefusal | None:
        """Return why a request of a local server may not reach the client; record the request and the reason."""
        refusal, ruling = await self.find_refusal_or_ask_ruling(exchange, request, size)
        if ruling is not None:
            refusal = ServerRequestRefusal(
                request, f"{ruling.reason.rstrip('.')}. {NOT_ASKABLE_LOCAL}", ruling.by
            )
        await self.record_server_request_or_log(exchange, request, refusal)
        return refusal

    async def find_refusal_or_ask_ruling(
        self, exchange: Exchange, request: ServerRequest, size: int
    ) -> tuple[ServerRequestRefusal | None, Ruling | None]:
        """Return why a request may not reach the client; else the ruling by which a person is to be asked, if any."""
        if request.method == UNREADABLE:
            return ServerRequestRefusal(request, "It cannot be read.", "gateway"), None
        try:
            brake = await self._elicitations.find_brake(exchange)
            if brake is not None:
                return ServerRequestRefusal(request, brake.agent_message, f"brake {brake.id}", brake), None
            ruling = await self.evaluate_server_request_policy(exchange, request, size)
        except (SignalboxError, DatabaseError) as problem:
            log.warning("A request of %s could not be judged: %s", exchange.server.name, problem)
            return ServerRequestRefusal(request, NOT_JUDGED, "gateway"), None
        return refusal_or_ask_from_ruling(request, ruling)

    async def evaluate_server_request_policy(
        self, exchange: Exchange, request: ServerRequest, size: int
    ) -> Ruling:
        """Return the strictest of what rules, grants and budgets say now. Raises Busy."""
        is_current, _ = await self._instant.get_policy_freshness_and_brake(exchange.agent_names_for_brakes)
        rules = await self._rulings.get_rules_if_current() if is_current else None
        caller, server = exchange.caller, exchange.server
        if rules is None or self._rulings.has_call_blocking_budgets:
            caller = replace(caller, session_id=await self.get_or_create_request_session_id(exchange))
        arguments, now = request.build_rule_arguments(server.name), timezone.now()
        if rules is None:
            judge = functools.partial(
                deciding.judge_server_request_from_database, server, request.method, caller, arguments, now
            )
            return await self._threads.run_in_thread(judge)
        pair = exchange.agent_id, server.name
        policy = (await self._policies.load_policies({pair}))[pair]
        verdict = policy.decide_tool_access(exchange.agent_id, server.name, "", now)
        judge = functools.partial(
            deciding.evaluate_server_request_by_policy,
            rules, verdict, server, request.method, caller=caller, arguments=arguments,
        )  # fmt: skip
        ruling = await self._threads.run_in_thread(judge) if size >= SLOW_TO_DECODE else judge()
        if caller.session_id is not None:
            by_budgets = await self._rulings.judge_session_budgets([exchange.agent_id], caller.session_id)
            ruling = stricter_ruling(ruling, by_budgets)
        return ruling

    async def get_or_create_request_session_id(self, exchange: Exchange) -> str:
        if exchange.record is not None:
            return exchange.record.session_id
        return await self._records.get_or_create_timeline_session_id(exchange)

    async def record_server_request_or_log(
        self, exchange: Exchange, request: ServerRequest, refusal: ServerRequestRefusal | None
    ) -> None:
        """Put a request that nobody was asked about into its timeline and, where it was refused, into the audit log."""
        try:
            if refusal is not None or request.method != ELICITATION:  # which its card records
                await self.record_server_request(exchange, request, refusal)
        except (SignalboxError, DatabaseError) as problem:
            log.warning("A request of %s is missing from its timeline: %s", exchange.server.name, problem)
        if refusal is not None:
            await self.audit_server_refusal_or_log(exchange, refusal)

    async def record_server_request(
        self, exchange: Exchange, request: ServerRequest, refusal: ServerRequestRefusal | None
    ) -> None:
        """Put a request into the timeline: refused ones and passed ones, each once a minute for each session."""
        session_id = await self.get_or_create_request_session_id(exchange)
        request_key, now = (session_id, exchange.server.name), asyncio.get_running_loop().time()
        slot = (*request_key, f"{request.method[:200]} {'refused' if refusal else 'passed'}")
        if not self._recorded.get(slot, now):
            self._recorded.put(slot, True, now)
            record = self.begin_server_request_record(exchange, request, session_id)
            record.decided_by = f"deny ({refusal.by})" if refusal else ""
            text = refusal.describe_server_request_refusal(exchange.server.name) if refusal else None
            self._records.end_call_record(record, "denied" if refusal else "ok", None, text)

    def begin_server_request_record(
        self, exchange: Exchange, request: ServerRequest, session_id: str
    ) -> CallRecord:
        params = request.build_rule_arguments(exchange.server.name)
        record = self._records.begin_non_tool_request_record(
            exchange, session_id, request.method[:200], params
        )
        record.claimed, record.began = "", time.perf_counter()  # it is none of its client's calls
        return record

    async def audit_server_refusal_or_log(self, exchange: Exchange, refusal: ServerRequestRefusal) -> None:
        try:
            await self._refusals.audit_access_refusal_with_throttle(
                exchange.admission,
                exchange.agent_id,
                exchange.server.name,
                Forbidden(refusal.describe_server_request_refusal(exchange.server.name)),
                is_known_server=True,
            )
        except (SignalboxError, DatabaseError) as problem:
            log.warning("A refusal is missing from the audit log: %s", problem)


class ServerRequestStream(OpenQuestions):
    """The requests of a server on one stream to its client, until the stream ends."""

    def __init__(
        self,
        gate: ServerRequestGate,
        exchange: Exchange,
        line: ResponseStream | None,
        *,
        is_servers_own: bool,
    ) -> None:
        super().__init__()
        self._gate = gate
        self._exchange = exchange
        self._line = line
        self._patience = LONGEST_WAIT if is_servers_own else elicitation_wait_seconds(exchange, line)
        self._count = 0

    async def intercept_server_message(self, data: bytes) -> bool:
        """Take in what a server sends; say whether its client is not to receive it, or not yet."""
        request = parse_server_request_or_none(data)
        if request is None:
            number = cancelled_request_id_or_none(data) if self.open_count else None
            return self.cancel_question(number)  # whose client does not know of it
        if self._exchange.person is not None:
            await self.report_refusal_to_server(ServerRequestRefusal(request, NOBODY_ANSWERS, "gateway"))
            return True
        refusal, ruling = await self._gate.find_refusal_or_ask_ruling(self._exchange, request, len(data))
        if ruling is not None:
            refusal = self.find_refusal_by_question_limits(request, ruling)
        if refusal is None and ruling is not None:
            self._count += 1
            self.start_question_job(request.number, self.forward_request_when_approved(request, ruling))
            # A task that is cancelled before it begins would leave its server without an answer.
            await asyncio.sleep(0)
            return True
        await self._gate.record_server_request_or_log(self._exchange, request, refusal)
        if refusal is not None:
            await self.report_refusal_to_server(refusal)
        return refusal is not None

    def find_refusal_by_question_limits(
        self, request: ServerRequest, ruling: Ruling
    ) -> ServerRequestRefusal | None:
        """Return why nobody is asked about a request, None where somebody is."""
        is_too_many = self._count >= MAX_REQUESTS or self.open_count >= MAX_QUESTIONS_AT_ONCE
        if is_too_many or self.is_open(request.number):
            return ServerRequestRefusal(request, TOO_MANY, ruling.by)
        if request.number is None or self._line is None or self._exchange.message.is_stateless:
            return ServerRequestRefusal(request, NOT_OFFERED, ruling.by)
        return None

    async def forward_request_when_approved(self, request: ServerRequest, ruling: Ruling) -> None:
        """Pass a request on once a person approved it; else answer its server. A stream that ends refuses it."""
        refusal: ServerRequestRefusal | None = ServerRequestRefusal(request, CALL_OVER, ruling.by)
        try:
            refusal = await self._gate.await_verdict_and_find_refusal(
                self._exchange, self._line, request, ruling, patience=self._patience
            )
            if refusal is None and not await self.send_server_request_to_client(request):
                refusal = ServerRequestRefusal(request, CALL_OVER, ruling.by)
        finally:
            if refusal is not None:
                await self.report_refusal_to_server(refusal)

    async def send_server_request_to_client(self, request: ServerRequest) -> bool:
        """Send a request on; say whether its client is still there."""
        assert self._line is not None
        if self._exchange.disconnect.happened or self._line.is_over:
            return False
        try:
            await self._line.open_event_stream()
            await self._line.send_event(sse.build_sse_message_event(request.encode_as_jsonrpc_message()))
        except (UpstreamFailed, OSError, RuntimeError):
            return False
        return True

    async def report_refusal_to_server(self, refusal: ServerRequestRefusal) -> None:
        if self._exchange.client is not None and refusal.request.number is not None:
            await self._gate.report_refusal_to_server(self._exchange, refusal)


def refusal_or_ask_from_ruling(
    request: ServerRequest, ruling: Ruling
) -> tuple[ServerRequestRefusal | None, Ruling | None]:
    """Return the refusal that a ruling is; else the ruling itself, where a person is to be asked."""
    reason = f"{ruling.reason.rstrip('.')}."
    if ruling.decision == DENY:
        return ServerRequestRefusal(request, reason, ruling.by), None
    if ruling.decision != ASK or request.method == ELICITATION:  # which a person answers anyway
        return None, None
    if request.method in ASKABLE:
        return None, ruling
    return ServerRequestRefusal(request, f"{reason} {NOT_ASKABLE}", ruling.by), None


def can_client_answer_request_kind(exchange: Exchange, request: ServerRequest) -> bool:
    """Say whether the client says that it answers such a request."""
    return can_client_answer_server_request(exchange.client_capabilities, request.method)
