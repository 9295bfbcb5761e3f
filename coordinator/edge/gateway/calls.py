"""`tools/call`: judged at this instant, then passed on, refused, or put before a person."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from dataclasses import replace
from typing import Any

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from coordinator.actions import gateway_calls
from coordinator.actions.gateway_calls import Attempt, CallPlace, Settled
from coordinator.edge.bodies import SLOW_TO_DECODE
from coordinator.edge.gateway.exchange import Exchange, param_mismatch
from coordinator.edge.gateway.holding import Held, Holding
from coordinator.edge.gateway.instant import Instant
from coordinator.edge.gateway.listings import Listings
from coordinator.edge.gateway.records import CallRecord, Records
from coordinator.edge.gateway.running import HEARD_ELSEWHERE, outcome_of, without_state
from coordinator.edge.gateway.sending import Sending
from coordinator.edge.gateway.upstreams import LeftOpen, finish
from coordinator.edge.http import Gone, no_database
from coordinator.edge.notes import Notes
from coordinator.edge.policies import Policies
from coordinator.edge.rulings import Rulings, by_brake
from coordinator.errors import SignalboxError
from coordinator.gateway import answers, deciding, messages
from coordinator.gateway.binding import Binding, digest_of, policy_version
from coordinator.gateway.http_client import LOOK_HOLDS, UpstreamFailed
from coordinator.gateway.messages import HEADER_MISMATCH, INVALID_PARAMS
from coordinator.gateway.states import PREFIX, GoOnState, WaitState, opened
from coordinator.lib.threads import EdgeThreads
from coordinator.policy.access import Verdict
from coordinator.policy.approvals import context_of
from coordinator.policy.tool_rules import ASK, DENY, Ruling, stricter

log = logging.getLogger(__name__)

ANOTHER = "The call differs from the earlier one, or the policy changed. Call it again."
CHANGED = "The policy changed while the call was on its way. Call it again."
REFUSED = frozenset({400, 404})  # as servers answer what they cannot take, and methods that they do not have


class NotAllowedAfterAll(Exception):
    """An allowed call does not go on after all."""

    def __init__(self, ruling: Ruling) -> None:
        super().__init__(ruling.reason)
        self.ruling = ruling


class Calls:
    """Calls of tools. One a process."""

    def __init__(
        self,
        *,
        rulings: Rulings,
        policies: Policies,
        listings: Listings,
        holding: Holding,
        records: Records,
        sending: Sending,
        instant: Instant,
        threads: EdgeThreads,
        notes: Notes,
    ) -> None:
        self._notes = notes
        self._rulings = rulings
        self._policies = policies
        self._listings = listings
        self._holding = holding
        self._records = records
        self._sending = sending
        self._instant = instant
        self._threads = threads

    async def call(self, x: Exchange) -> None:
        """Answer one call. A refusal that it raises knows whether a server may have heard the call."""
        try:
            await self._answer(x)
        except SignalboxError as problem:
            problem.not_sent = not x.is_sent
            raise
        except (InterfaceError, OperationalError) as problem:
            log.warning("A call of %s met no database: %s", x.server.name, str(problem).strip())
            refusal = no_database(problem)
            refusal.not_sent = not x.is_sent
            raise refusal from None

    async def _answer(self, x: Exchange) -> None:
        tool, arguments = x.message.params.get("name"), x.message.params.get("arguments")
        if not isinstance(tool, str) or not isinstance(arguments, dict | None):
            words = "A call must name its tool, and its arguments must be an object."
            await x.line.answer(answers.error(x.message.id, INVALID_PARAMS, words), 200)
            return
        if tool not in x.server.tools or x.server.tools[tool].is_gone:
            await self._listings.look_for(x, tool)
        if (mismatch := param_mismatch(x)) is not None:
            await x.line.answer(answers.error(x.message.id, HEADER_MISMATCH, mismatch), 400)
            return
        session_id = await self._records.session_of(x)  # it may have to be written, which takes a moment
        ruling, verdict = await self.decide(x, tool, arguments, session_id)
        state = opened(x.message.params.get("requestState"))
        record = await self._record(x, tool, session_id, ruling, state)
        record.decided_by = f"{ruling.decision} ({ruling.by})" if ruling.by else ""
        try:
            await self._follow(x, record, ruling, verdict, state)
        except (SignalboxError, InterfaceError, OperationalError) as problem:
            if not record.is_over:
                self._records.end(record, "failed", None, detail_of(problem))
            raise

    async def _record(
        self, x: Exchange, tool: str, session_id: str, ruling: Ruling, state: WaitState | GoOnState | None
    ) -> CallRecord:
        """Return the record of a call: that of its earlier try, where the client's state is of this very call."""
        arguments = x.message.params.get("arguments")
        if state is not None:
            binding = _binding(x, tool, arguments, ruling)
            if await self._threads.run(gateway_calls.stands, binding, state):
                return self._records.taken_up(x, state.call_id, session_id, tool)
        return self._records.begin(x, gateway_calls.new_id(), session_id, tool, arguments)

    async def _follow(
        self,
        x: Exchange,
        record: CallRecord,
        ruling: Ruling,
        verdict: Verdict,
        state: WaitState | GoOnState | None,
    ) -> None:
        """Do with a call what was ruled."""
        if ruling.decision == DENY:
            await self._deny(x, record, ruling, verdict)
        elif ruling.decision == ASK or isinstance(state, GoOnState):
            await self._ask(x, record, ruling, state)
        elif state is not None:
            await self._go_past(x, record, ruling, verdict, state)
        elif str(x.message.params.get("requestState", "")).startswith(PREFIX):
            await self._say(x, record, "held", "The wait for this call has ended. Call it again.")
        else:
            await self._pass(x, record, verdict)

    async def decide(
        self, x: Exchange, name: str, arguments: Any, session_id: str, *, is_read: bool = False
    ) -> tuple[Ruling, Verdict]:
        """Return the strictest of what rules, grants and budgets say now of a call in this session.

        `name` is the tool's; that of the method where it `is_read`, a request other than a call.

        Raises Busy where the grants cannot be read, Unauthorized and Forbidden where the key is no good any more.
        """
        is_told = await self._look(x)
        rules = await self._rulings.rules() if is_told else None
        if rules is None or self._rulings.has_budgets:
            x.caller = replace(x.caller, session_id=session_id)
        if not is_told:
            await x.admission.require_now()
            self._listings.forget(x.server.name)
        x.server = await self._listings.server(x)  # it may be another one than when the request came
        now = timezone.now()
        if rules is None:
            read = functools.partial(deciding.now, is_read=is_read)
            return await self._threads.run(read, x.server, name, x.caller, arguments, now)
        pair = x.agent_id, x.server.name
        policy = (await self._policies.of({pair}))[pair]
        verdict = policy.verdict(x.agent_id, x.server.name, "" if is_read else name, now)
        judge = functools.partial(
            deciding.on_read if is_read else deciding.on_call,
            rules, verdict, x.server, name, caller=x.caller, arguments=arguments,
        )  # fmt: skip
        is_large = len(x.message.raw) >= SLOW_TO_DECODE
        ruling = await self._threads.run(judge) if is_large else judge()
        if x.caller.session_id is not None:
            ruling = stricter(ruling, await self._rulings.by_budgets([x.agent_id], x.caller.session_id))
        return ruling, verdict

    async def _look(self, x: Exchange) -> bool:
        """Note which brake is on for the agent; return whether this process knows of every edit of the policy."""
        is_told, x.brake = await self._instant.look(x.known_as)
        x.looked_at = time.monotonic()
        return is_told

    async def _deny(self, x: Exchange, record: CallRecord, ruling: Ruling, verdict: Verdict) -> None:
        words = await self.note_denial(x, record, ruling)
        about = {"decision": "deny", "by": ruling.by, "reason": ruling.reason, "source": verdict.source}
        response = answers.tool_error(x.message, words, about)
        self._records.end(record, "denied", response)
        await x.line.answer(response)

    async def note_denial(self, x: Exchange, record: CallRecord, ruling: Ruling) -> str:
        """Have a denial audited; return the words for the model."""
        place = CallPlace(record.session_id, x.client.session_id if x.client else None)
        binding = binding_of(x, record, ruling)
        await self._records.perform(
            functools.partial(gateway_calls.note_denial, binding, ruling, place, now=timezone.now())
        )
        return answers.denied(x.server.name, record.tool, ruling.reason, gateway_calls.allowed_at(ruling))

    async def _ask(
        self, x: Exchange, record: CallRecord, ruling: Ruling, state: WaitState | GoOnState | None
    ) -> None:
        binding = binding_of(x, record, ruling)
        place = CallPlace(
            record.session_id,
            x.client.session_id if x.client else None,
            client=x.client_name,
            sent_along=x.message.sent_along,
        )
        if state is not None and state.key != binding.key and ruling.decision == ASK:
            await self._say(x, record, "held", ANOTHER)
            return
        if not record.goes_on:
            place = replace(place, event_id=await self._records.write_begin(record))
        held = Held(x, binding, ruling, place, record)
        if isinstance(state, GoOnState):
            await self._holding.go_on(held, state)
        else:
            await self._holding.hold(held, state)

    async def _go_past(
        self, x: Exchange, record: CallRecord, ruling: Ruling, verdict: Verdict, state: WaitState
    ) -> None:
        """Pass a call on about which a person was asked and nobody need be asked by now; close that question."""
        place = CallPlace(record.session_id, x.client.session_id if x.client else None)
        attempt = Attempt(record.call_id, binding_of(x, record, ruling), x.caller, place)
        settled, request = await self._threads.run(
            gateway_calls.settle, attempt, state.request_id, state.key, now=timezone.now()
        )
        if settled is Settled.ANOTHER:
            await self._say(x, record, "held", ANOTHER)
            return
        if settled is Settled.DENIED:
            context = context_of(request)
            record.decided_by = f"denied by {request.approved_by or 'somebody'}"
            words = answers.by_person(record.tool, context.reason if context else None)
            await self._say(x, record, "denied", words)
            return
        if settled is Settled.OVER and record.goes_on:
            self._records.begin_anew(record, gateway_calls.new_id())
        x.message = messages.read(without_state(x.message, None))
        await self._pass(x, record, verdict)

    async def _say(self, x: Exchange, record: CallRecord, outcome: str, words: str) -> None:
        response = answers.tool_error(x.message, words)
        self._records.end(record, outcome, response)
        await x.line.answer(response)

    async def _pass(self, x: Exchange, record: CallRecord, verdict: Verdict) -> None:
        """Pass an allowed call on, and its answer back; where the client leaves, the server is left, too."""
        try:
            if time.monotonic() - x.looked_at > LOOK_HOLDS:
                await self._look_once_more(x, record)
            elif x.brake is not None:
                raise NotAllowedAfterAll(by_brake(x.brake))
            await self._pass_on(x, record)
        except NotAllowedAfterAll as stopped:
            ruling = stopped.ruling
            record.decided_by = ruling.by
            if x.brake is None:
                await self._deny(x, record, ruling, verdict)
            else:
                await self.note_denial(x, record, ruling)
                await self._say(x, record, "denied", ruling.reason)

    async def _look_once_more(self, x: Exchange, record: CallRecord) -> None:
        """Raise NotAllowedAfterAll where a brake, or a policy that changed meanwhile, stops an allowed call."""
        is_told = await self._look(x)
        if is_told and x.brake is None:
            return
        ruling, _ = await self.decide(x, record.tool, record.arguments, record.session_id)
        if x.brake is not None:
            raise NotAllowedAfterAll(by_brake(x.brake))
        if ruling.decision == DENY:
            raise NotAllowedAfterAll(ruling)
        if ruling.decision == ASK:
            raise NotAllowedAfterAll(replace(ruling, decision=DENY, reason=CHANGED))

    async def _pass_on(self, x: Exchange, record: CallRecord) -> None:
        if x.gone.happened:
            raise self._left(record)
        task = asyncio.current_task()
        assert task is not None
        with x.gone.then(task.cancel):
            try:
                await self._passed(x, record)
            except asyncio.CancelledError:
                if not x.gone.happened or task.uncancel():
                    raise
                raise self._left(record) from None

    def _left(self, record: CallRecord) -> Gone:
        self._records.end(record, "failed", None, "The client went away.")
        return Gone()

    async def _passed(self, x: Exchange, record: CallRecord) -> None:
        x.is_sent = True
        look = functools.partial(self._look_once_more, x, record)
        try:
            with record.at_server(x):
                response, event, status = await self._sending.call(x, x.message.raw, x.line, look)
        except LeftOpen:
            await x.line.end()
            self._records.end(record, "ok", None, HEARD_ELSEWHERE)
            return
        except UpstreamFailed as problem:
            await self._broke_off(x, record, problem)
            return
        through = f"a result of {record.tool} of {x.server.name}"
        told = response
        if x.takes_notes:
            told, event = await self._notes.added(record.session_id, through, response, event)
        try:
            await finish(x.line, told, event, _status_of(x, status))
        except UpstreamFailed as problem:  # the client leaves too much unread
            await self._broke_off(x, record, problem)
            return
        self._records.end(record, outcome_of(response), response)

    async def _broke_off(self, x: Exchange, record: CallRecord, problem: UpstreamFailed) -> None:
        """Tell the client, and its timeline, that its call has no answer, and whether it may have run."""
        words = answers.broke_off if problem.may_have_run else answers.not_reached
        about = {"decision": "allow", "sent": problem.may_have_run}
        response = answers.tool_error(x.message, words(x.server.name, record.tool, str(problem)), about)
        self._records.end(record, "failed", response, f"The server {problem}.")
        await x.line.answer(response)


def detail_of(problem: Exception) -> str:
    """Return what a timeline says of a call that was refused on its way."""
    refusal = problem if isinstance(problem, SignalboxError) else no_database(problem)
    return str(refusal.detail)


def _status_of(x: Exchange, status: int) -> int:
    """Return the status with which a server's answer is passed on.

    A client may send a call anew that was answered 502 to 504, so of most calls it is 200 whatever the server said.
    Since 2026-07-28 a refused message has a status of its own, at which nothing is sent anew.
    """
    return status if x.message.is_stateless and status in REFUSED else 200


def binding_of(x: Exchange, record: CallRecord, ruling: Ruling) -> Binding:
    """Return what an approval of the call is bound to."""
    return _binding(x, record.tool, record.arguments, ruling)


def _binding(x: Exchange, tool: str, arguments: Any, ruling: Ruling) -> Binding:
    known = x.server.tools.get(tool)
    return Binding(
        x.key.actor,
        x.key.id,
        x.agent_id,
        x.server.name,
        tool,
        arguments if isinstance(arguments, dict) else None,
        digest_of(x.message.raw_arguments),
        known.definition if known else "",
        policy_version(ruling),
    )
