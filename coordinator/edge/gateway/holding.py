"""Calls that a person is asked about: told to the client in the best way it knows, run once when they are approved.

The ways, best first: a task that the client polls; `input_required` with the card's address and a sealed state; a
stream that stays open, with progress, as long as the client stays; else an error that says "call again". Whatever
becomes of line, worker or server, the question stands in the database, and so does what was approved.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.utils import timezone

from coordinator.actions import approvals, gateway_calls
from coordinator.actions.approvals.holding import held_for
from coordinator.actions.gateway_calls import Attempt, CallPlace
from coordinator.edge.gateway import running
from coordinator.edge.gateway.exchange import Exchange, is_impatience
from coordinator.edge.gateway.pulse import Pulse
from coordinator.edge.gateway.records import CallRecord, Records
from coordinator.edge.gateway.running import Runner
from coordinator.edge.http import Gone
from coordinator.edge.shares import Shares
from coordinator.edge.waits import Waits
from coordinator.gateway import answers
from coordinator.gateway.binding import Binding
from coordinator.gateway.messages import TASKS
from coordinator.gateway.states import GoOnState, WaitState, packed
from coordinator.lib import instants
from coordinator.lib.threads import EdgeThreads
from coordinator.models import GatewayCall, PermissionRequest
from coordinator.models.gateway import CallState
from coordinator.policy import approvals as rules
from coordinator.policy.tool_rules import DENY, Ruling

T = TypeVar("T")

MOST_HELD = 8_000  # calls that wait in one process
# Seconds after which a client that asked for no progress would give up: many do after 60.
WITHOUT_PROGRESS = 50.0
ROUND = 50.0  # seconds for which one try of a stateless client is held
MOST_ROUNDS = 9  # clients try ten times
WITHOUT_EVENTS = 20.0  # seconds for a client that takes no events
BREAKS_OFF_AFTER = {"codex": 10.0}  # seconds, by program: whatever it is told, it waits no longer
HEARD_WITHIN = 0.5  # seconds after a call's end in which it is noted that its own line heard it
CANCELLED = "The client cancelled the call while it waited."
MOST_TRIES = 4  # how often a question is put anew while others take its approval


@dataclass(slots=True)
class Held:
    """One call that is held, on its way."""

    x: Exchange
    binding: Binding
    ruling: Ruling
    place: CallPlace
    record: CallRecord
    is_kept: bool = False  # while its line waits, so that its client can cancel it anywhere

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.record.call_id, self.binding, self.x.caller, self.place)


@dataclass(frozen=True, slots=True)
class Card:
    """What of a request is kept in memory while a call waits for it: the rest stands in the database."""

    pk: int
    request_id: str
    link: str


class Holding:
    """Who waits in this process. One a process."""

    def __init__(self, waits: Waits, threads: EdgeThreads, records: Records, runner: Runner) -> None:
        self._waits = waits
        self._threads = threads
        self._records = records
        self._runner = runner
        self._places = Shares(MOST_HELD, "calls that wait for people")
        self.pulse = Pulse()

    async def hold(self, held: Held, state: WaitState | None = None) -> None:
        """Have a person decide the call, and answer the client. `state` is what a stateless client sent back."""
        with self._places.place(held.x.key.name):
            try:
                await self._hold(held, state)
            except gateway_calls.Cancelled:
                self._records.end(held.record, "held", None, CANCELLED)
                await held.x.line.let_go()
            finally:
                if held.is_kept:
                    await self._threads.run(gateway_calls.leave_line, held.record.call_id)

    async def cancel(self, x: Exchange) -> bool:
        """Cancel the call that a client's notification names, and close its card; False where none of it waits."""
        if x.client is None:
            return False
        number = x.message.params.get("requestId")
        if not isinstance(number, str | int | float):
            return False
        cancel = functools.partial(
            gateway_calls.cancel,
            x.client.session_id,
            number,
            x.key.actor,
            key_id=x.key.id,
            agent_id=x.agent_id,
            keeps_card=is_impatience(str(x.message.params.get("reason", ""))),
        )
        return await self._threads.run(cancel, now=timezone.now())

    async def _hold(self, held: Held, state: WaitState | None) -> None:
        card = None
        for _ in range(MOST_TRIES):
            await self._require_wanted(held)
            known = await self._threads.run(gateway_calls.earlier, held.binding, timezone.now())
            if known is not None and await self._known(held, known):
                return
            card, row = await self._ask(held)
            if card is not None and await self._answered(held, card, row, state):
                return
        if card is not None:
            await self._tell_to_wait(held, card)
        else:
            await self._turn_away(held, answers.waiting_for_run(held.binding.tool))

    async def _require_wanted(self, held: Held) -> None:
        """Raise gateway_calls.Cancelled where the client has cancelled the call."""
        if held.is_kept:
            await self._threads.run(gateway_calls.require_wanted, held.record.call_id)

    async def _known(self, held: Held, known: GatewayCall) -> bool:
        """Answer with what became of the very same call, begun before: it runs, has an unheard result, or is lost."""
        if known.state == CallState.RUNNING:
            found = await self._until_ended(held, known)
            if found is None:
                await self._turn_away(held, answers.waiting_for_run(held.binding.tool))
                return True
            if await self._is_heard(held, found):
                return False
            known = found
        self._require_client(held)
        if not await self._threads.run(gateway_calls.claim, known.call_id, now=timezone.now()):
            return False
        is_told = False
        try:
            await self._tell_end(held, known)
            is_told = not held.x.gone.happened
        finally:
            if not is_told:
                await self._threads.run(gateway_calls.unclaim, known.call_id)
        return True

    async def _tell_end(self, held: Held, known: GatewayCall) -> None:
        """Tell how the very same call ended, as far as that is known."""
        if held.x.gone.happened:
            return  # it left meanwhile
        if known.state == CallState.LOST or known.result is None:
            words = answers.unknown_end(held.binding.tool, _told(known.started_at))
            await self._say(held, "failed", words)
            return
        response = running.renumbered(gateway_calls.result_of(known), held.x.message.id)
        self._records.end(held.record, "held" if running.question_in(response) else "ok", response)
        await held.x.line.answer(response)

    def _require_client(self, held: Held) -> None:
        """Raise Gone where nobody is there to be told an end: it is for the same call made again."""
        if held.x.gone.happened:
            self._records.end(held.record, "held", None, "The client went away while the call waited.")
            raise Gone

    async def _until_ended(self, held: Held, known: GatewayCall) -> GatewayCall | None:
        return await self._wait(
            held,
            functools.partial(_if_ended, known.call_id, held.binding),
            f"gateway_calls:{known.call_id}",
            self._patience(held.x),
            f"{held.binding.tool} was approved and runs",
        )

    async def _is_heard(self, held: Held, known: GatewayCall) -> bool:
        """Say whether the line that ran a call hears its end: then this is another call that says the same."""
        check = functools.partial(_if_delivered, known.call_id)
        words = f"{held.binding.tool} has run"
        return (
            await self._wait(held, check, f"gateway_calls:{known.call_id}", HEARD_WITHIN, words) is not None
        )

    async def _ask(self, held: Held) -> tuple[Card | None, PermissionRequest | None]:
        """Return the request that answers the call, and what was decided where it is decided already.

        Nothing where an earlier line of its client has begun the call just now.
        """
        until = timezone.now() + timedelta(seconds=self._patience(held.x))
        x = held.x
        kept = None if x.client is None or x.message.is_stateless else (held.record.call_id, x.message.id)
        row = await self._threads.run(
            gateway_calls.ask_unless_begun,
            held.binding,
            held.ruling,
            held.place,
            until=until,
            now=timezone.now(),
            kept=kept,
        )
        held.is_kept = kept is not None
        if row is None:
            return None, None
        card = Card(row.pk, row.request_id, gateway_calls.card(row))
        return card, None if rules.standing(row, timezone.now()).waiting else row

    async def _answered(
        self, held: Held, card: Card, row: PermissionRequest | None, state: WaitState | None
    ) -> bool:
        """Answer the client by the request, which may take its time; False to put the question once more."""
        if row is None:
            if TASKS in _extensions(held.x):
                await self._give_task(held, card)
                return True
            if held.x.message.is_stateless and _opens_addresses(held.x) and state is None:
                await self._require_input(held, card, 0, with_address=True)
                return True
            row = await self._until_decided(held, card)
            if row is None:
                await self._not_yet(held, card, state)
                return True
        return await self._decided(held, row)

    async def _decided(self, held: Held, row: PermissionRequest) -> bool:
        now = timezone.now()
        standing = rules.standing(row, now)
        context = rules.context_of(row)
        if standing.allowed:
            refusal = await self._threads.run(gateway_calls.begin, held.attempt, row.request_id, now=now)
            if refusal is None:
                held.record.decided_by = f"approved by {row.approved_by or 'somebody'}"
                await self._runner.run(held.x, held.record, held.binding)
                return True
            if refusal.decision == DENY:
                await self._deny(held, refusal)
                return True
            return await self._asked_anew(held, refusal)
        if row.status == PermissionRequest.Status.DENIED:
            self._require_client(held)
            await self._threads.run(gateway_calls.take_denial, held.attempt, row.request_id, now=now)
            held.record.decided_by = f"denied by {row.approved_by or 'somebody'}"
            reason = context.reason if context else None
            await self._say(held, "denied", answers.by_person(held.binding.tool, reason))
            return True
        words = answers.undecided(held.binding.tool, standing.word)
        await self._say(held, "held", words)
        return True

    async def _asked_anew(self, held: Held, refusal: Ruling) -> bool:
        """Have what counts by now in place of what was asked: the next question is about that."""
        fresh = await self._runner.bound_anew(held.x, held.binding)
        if fresh is None:
            denial = replace(refusal, decision=DENY)
            await self._threads.run(
                gateway_calls.note_denial, held.binding, denial, held.place, now=timezone.now()
            )
            await self._deny(held, denial)
            return True
        held.binding, held.ruling = fresh
        if held.record.goes_on and await self._threads.run(gateway_calls.is_begun, held.record.call_id):
            self._records.begin_anew(held.record, gateway_calls.new_id())
            held.place = replace(held.place, event_id=await self._records.write_begin(held.record))
        return False

    async def _deny(self, held: Held, denial: Ruling) -> None:
        """Tell what stands against a call by now."""
        words = answers.denied(
            held.binding.server_id, held.binding.tool, denial.reason, gateway_calls.allowed_at(denial)
        )
        await self._say(held, "denied", words)

    async def _until_decided(self, held: Held, card: Card) -> PermissionRequest | None:
        """Wait for a person; None where the client's patience ends first. Raises Gone where the client leaves."""
        began = time.perf_counter()
        try:
            return await self._wait(
                held,
                functools.partial(
                    _if_decided, card.request_id, held.record.call_id if held.is_kept else None
                ),
                f"permission_requests:{card.pk}",
                self._patience(held.x),
                f"Waits for approval: {card.link}",
            )
        finally:
            held.record.waited += time.perf_counter() - began

    async def _wait(
        self, held: Held, check: Callable[[], T | None], topic: str, patience: float, words: str
    ) -> T | None:
        x = held.x
        if x.takes_events:
            await x.line.open()
        with self.pulse.beating(x, words):
            found = await self._waits.wait_until(
                check,
                topics=[topic, f"gateway_calls:{held.record.call_id}"],
                timeout=patience,
                still_allowed=x.admission.still_allowed,
                gone=x.gone,
            )
        if found is None:
            self._require_client(held)
        await x.admission.still_allowed()
        return found

    def _patience(self, x: Exchange) -> float:
        """Return for how many seconds this client can be made to wait on its line."""
        if not x.takes_events:
            return WITHOUT_EVENTS
        if x.message.is_stateless and _opens_addresses(x):
            return ROUND
        if x.program in BREAKS_OFF_AFTER:
            return BREAKS_OFF_AFTER[x.program]
        return WITHOUT_PROGRESS if x.message.progress_token is None else held_for().total_seconds()

    async def _not_yet(self, held: Held, card: Card, state: WaitState | None) -> None:
        if state is not None and state.round + 1 < MOST_ROUNDS:
            await self._require_input(held, card, state.round + 1, with_address=False)
        else:
            await self._tell_to_wait(held, card)

    async def _tell_to_wait(self, held: Held, card: Card) -> None:
        why = "The agent was told to call again."
        await self._threads.run(
            approvals.hold, card.request_id, by=held.binding.by, reason=why, now=timezone.now()
        )
        await self._say(held, "held", answers.waiting(held.binding.tool, card.link))

    async def _require_input(self, held: Held, card: Card, round_: int, *, with_address: bool) -> None:
        """Answer that a person has to decide, at the card's address; the client tries again when they have seen it."""
        why = "The agent's client was given the card's address."
        if with_address:
            await self._threads.run(
                approvals.hold, card.request_id, by=held.binding.by, reason=why, now=timezone.now()
            )
        until = time.time() + held_for().total_seconds()
        state = WaitState(held.record.call_id, card.request_id, held.binding.key, until, round_)
        result: dict[str, Any] = {"resultType": "input_required", "requestState": packed(state)}
        if with_address:
            words = f"{held.binding.tool} of {held.binding.server_id} needs a person's approval in Signalbox."
            asked = {"mode": "url", "message": words, "url": card.link}
            result["inputRequests"] = {"approval": {"method": "elicitation/create", "params": asked}}
        self._records.leave(held.record)
        await held.x.line.answer(answers.result(held.x.message.id, result))

    async def _give_task(self, held: Held, card: Card) -> None:
        """Answer with a task; it stands in the database before the client hears of it."""
        call = await self._threads.run(
            gateway_calls.create_task,
            held.attempt,
            card.request_id,
            running.kept_message(held.x),
            now=timezone.now(),
        )
        await self._threads.run(
            approvals.hold,
            card.request_id,
            by=held.binding.by,
            reason="The agent's client polls for the verdict.",
            now=timezone.now(),
        )
        self._records.leave(held.record)
        value = {"resultType": "task", **running.task_of(call, card.link)}
        await held.x.line.answer(answers.result(held.x.message.id, value))

    async def _say(self, held: Held, outcome: str, words: str) -> None:
        response = answers.tool_error(held.x.message, words)
        self._records.end(held.record, outcome, response)
        await held.x.line.answer(response)

    async def _turn_away(self, held: Held, words: str) -> None:
        """Say something that ends no call which goes on elsewhere."""
        response = answers.tool_error(held.x.message, words)
        self._records.turn_away(held.record, response)
        await held.x.line.answer(response)

    async def go_on(self, held: Held, state: GoOnState) -> None:
        """Let an approved call go on whose server asked for more, once for each of its questions."""
        refusal = await self._threads.run(gateway_calls.go_on, held.attempt, state.round, now=timezone.now())
        if refusal is None:
            await self._runner.go_on(held.x, held.record, held.binding, state)
        elif refusal.decision == DENY:
            await self._deny(held, refusal)
        else:
            await self._turn_away(held, answers.stopped_short(held.binding.tool, refusal.reason))


def _if_decided(request_id: str, kept: str | None) -> PermissionRequest | None:
    if kept is not None:
        gateway_calls.require_wanted(kept)
    row = rules.find(request_id)
    return None if rules.standing(row, timezone.now()).waiting else row


def _if_ended(call_id: str, binding: Binding) -> GatewayCall | None:
    now = timezone.now()
    call = gateway_calls.lost_if_gone(GatewayCall.objects.get(pk=call_id), by=binding, now=now)
    return None if call.state == CallState.RUNNING else call


def _if_delivered(call_id: str) -> bool | None:
    return GatewayCall.objects.filter(pk=call_id, delivered_at__isnull=False).exists() or None


def _extensions(x: Exchange) -> dict[str, Any]:
    found = x.message.capabilities.get("extensions")
    return found if x.message.is_stateless and isinstance(found, dict) else {}


def _opens_addresses(x: Exchange) -> bool:
    found = x.message.capabilities.get("elicitation")
    return isinstance(found, dict) and isinstance(found.get("url"), dict)


def _told(at: Any) -> str:
    return instants.canonical(at) if isinstance(at, datetime) else "an unknown time"
