"""What servers ask of their clients (sampling, elicitation, roots), held to rules, grants, budgets and the brake.

A request that may not pass never reaches the client: its server is answered in the client's place. Nobody is asked
about one, so where policy asks it is refused. A failure to find out refuses it, too.
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
from coordinator.edge.gateway.elicitations import ElicitationHandler
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.freshness import FreshnessCheck
from coordinator.edge.gateway.records import CallRecords
from coordinator.edge.http.bodies import SLOW_TO_DECODE
from coordinator.edge.policy.policy_cache import PolicyCache
from coordinator.edge.policy.rulings import PolicyRulings
from coordinator.errors import Forbidden, SignalboxError
from coordinator.lib.expiring_cache import ExpiringCache
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway.server_requests import (
    UNREADABLE,
    ServerRequest,
    find_required_requests,
    parse_server_request,
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
NOT_ASKED = "Signalbox asks people about calls of tools alone."
NOT_JUDGED = "What policy says of it could not be found out."


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """Why a request of a server does not reach its client. `brake` is the one that stops it."""

    request: ServerRequest
    reason: str
    by: str
    brake: ActiveBrake | None = None

    def describe_refusal(self, server_id: str) -> str:
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
    ) -> None:
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

    async def refuse_server_request(self, exchange: Exchange, data: bytes) -> bool:
        """Answer a server's request that may not reach its client; say whether it was refused."""
        request = parse_server_request(data)
        if request is None:
            return False
        refusal = await self.find_request_refusal(exchange, request, len(data))
        if refusal is None:
            return False
        if exchange.client is not None and request.number is not None:
            await self.send_refusal(exchange, refusal)
        return True

    async def send_refusal(self, exchange: Exchange, refusal: RequestRefusal) -> None:
        request = refusal.request
        try:
            if request.method == ELICITATION:
                action = {"action": CANCEL if refusal.brake else DECLINE}
                await self._elicitations.send_response(exchange, request.number, result=action)
            else:
                error = {"code": REJECTED, "message": refusal.describe_refusal(exchange.server.name)}
                await self._elicitations.send_response(exchange, request.number, error=error)
        except UpstreamFailed as problem:
            log.warning("A refusal was not sent to %s: it %s", exchange.server.name, problem)

    async def replace_refused_input(self, exchange: Exchange, response: bytes) -> bytes:
        """Return a response, or an error in its place where it asks of the client what may not reach it."""
        for request in find_required_requests(response):
            refusal = await self.find_request_refusal(exchange, request, len(response))
            if refusal is not None:
                code = BRAKED if refusal.brake else DENIED
                text = refusal.describe_refusal(exchange.server.name)
                return answers.build_error_response(exchange.message.id, code, text)
        return response

    async def replace_refused_event(
        self, exchange: Exchange, response: bytes, event: bytes | None
    ) -> tuple[bytes, bytes | None]:
        """Return a response as `replace_refused_input` does, and the event in which it came."""
        checked = await self.replace_refused_input(exchange, response)
        if checked is response or event is None:
            return checked, event
        return checked, sse.replace_event_data(event, checked)

    async def has_denied_question(self, exchange: Exchange, response: bytes) -> bool:
        """Say whether the result of a call asks a person something that rules deny. Records nothing."""
        for request in find_required_requests(response):
            if request.method == ELICITATION:
                ruling = await self.judge_request(exchange, request, len(response))
                if ruling.decision == DENY:
                    return True
        return False

    async def refuse_braked_answer(self, exchange: Exchange) -> bool:
        """Answer a server in place of a client that answers it while a brake is on; say whether one is."""
        brake = await self._elicitations.find_brake(exchange)
        if brake is None:
            return False
        error = {"code": REJECTED, "message": f"Denied: the answer was not passed on. {brake.agent_message}"}
        try:
            await self._elicitations.send_response(exchange, exchange.message.id, error=error)
        except UpstreamFailed as problem:
            log.warning("A refusal was not sent to %s: it %s", exchange.server.name, problem)
        return True

    async def find_request_refusal(
        self, exchange: Exchange, request: ServerRequest, size: int
    ) -> RequestRefusal | None:
        """Return why a request may not reach the client, None where it may; record either."""
        refusal = await self.judge_and_explain(exchange, request, size)
        if refusal is not None or request.method != ELICITATION:  # which its card records
            try:
                await self.record_server_request(exchange, request, refusal)
            except (SignalboxError, DatabaseError) as problem:
                log.warning("A request of %s is missing from its timeline: %s", exchange.server.name, problem)
        return refusal

    async def judge_and_explain(
        self, exchange: Exchange, request: ServerRequest, size: int
    ) -> RequestRefusal | None:
        if request.method == UNREADABLE:
            return RequestRefusal(request, "It cannot be read.", "gateway")
        try:
            brake = await self._elicitations.find_brake(exchange)
            if brake is not None:
                return RequestRefusal(request, brake.agent_message, f"brake {brake.id}", brake)
            ruling = await self.judge_request(exchange, request, size)
        except (SignalboxError, DatabaseError) as problem:
            log.warning("A request of %s could not be judged: %s", exchange.server.name, problem)
            return RequestRefusal(request, NOT_JUDGED, "gateway")
        reason = f"{ruling.reason.rstrip('.')}."
        if ruling.decision == DENY:
            return RequestRefusal(request, reason, ruling.by)
        if ruling.decision == ASK and request.method != ELICITATION:  # which a person answers anyway
            return RequestRefusal(request, f"{reason} {NOT_ASKED}", ruling.by)
        return None

    async def judge_request(self, exchange: Exchange, request: ServerRequest, size: int) -> Ruling:
        """Return the strictest of what rules, grants and budgets say now. Raises Busy."""
        is_current, _ = await self._instant.check_freshness(exchange.brake_names)
        rules = await self._rulings.load_current_rules() if is_current else None
        caller, server = exchange.caller, exchange.server
        if rules is None or self._rulings.has_budgets:
            caller = replace(caller, session_id=await self.find_session(exchange))
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
            deciding.judge_server_request,
            rules, verdict, server, request.method, caller=caller, arguments=arguments,
        )  # fmt: skip
        ruling = await self._threads.run_in_thread(judge) if size >= SLOW_TO_DECODE else judge()
        if caller.session_id is not None:
            by_budgets = await self._rulings.judge_session_budgets([exchange.agent_id], caller.session_id)
            ruling = stricter_ruling(ruling, by_budgets)
        return ruling

    async def find_session(self, exchange: Exchange) -> str:
        if exchange.record is not None:
            return exchange.record.session_id
        return await self._records.find_timeline_session(exchange)

    async def record_server_request(
        self, exchange: Exchange, request: ServerRequest, refusal: RequestRefusal | None
    ) -> None:
        """Put a request into the timeline: refused ones and passed ones, each once a minute for each session."""
        session_id = await self.find_session(exchange)
        request_key, now = (session_id, exchange.server.name), asyncio.get_running_loop().time()
        slot = (*request_key, f"{request.method[:200]} {'refused' if refusal else 'passed'}")
        if not self._recorded.get(slot, now):
            self._recorded.put(slot, True, now)
            params = request.build_rule_arguments(exchange.server.name)
            record = self._records.begin_read_record(exchange, session_id, request.method[:200], params)
            record.claimed, record.began = "", time.perf_counter()  # it is none of its client's calls
            record.decided_by = f"deny ({refusal.by})" if refusal else ""
            text = refusal.describe_refusal(exchange.server.name) if refusal else None
            self._records.end_call_record(record, "denied" if refusal else "ok", None, text)
        if refusal is not None:
            await self._refusals.audit_refusal(
                exchange.admission,
                exchange.agent_id,
                exchange.server.name,
                Forbidden(refusal.describe_refusal(exchange.server.name)),
                is_known_server=True,
            )
