"""`POST /hooks/{agent}`: whatever an agent tells, at the rate it tells it. It never waits for us to write.

An agent stands still while a hook of its is out. So the answer goes out when the hook is committed, and a moment
later where the database takes its time (edge.recorder). A hook that policy or people decide is answered in any
case: edge.call_guard, which stands before this door, sees to that. Only a status outside 2xx would show the person
an error; those are for what a person must mend (a key, a body that is no hook) and for what is lost.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from urllib.parse import unquote_to_bytes

from django.utils import timezone

from coordinator.actions import tool_calls
from coordinator.dialects.contract import Dialect, Reply
from coordinator.dialects.hooks import Hook, ShellLines, mended
from coordinator.edge.auth import Admission, Authenticator
from coordinator.edge.bodies import Bodies, BodyShare
from coordinator.edge.brake_gate import BrakeGate
from coordinator.edge.call_guard import GuardedCall, comes_again, why_unasked
from coordinator.edge.held_hooks import Asker
from coordinator.edge.hook_deliveries import Delivery, delivery_of
from coordinator.edge.http import Headers, headers_of
from coordinator.edge.limits import KEY, LIMITS, STRANGER, BodyLimit
from coordinator.edge.notes import Notes
from coordinator.edge.peers import network_of, peer_of
from coordinator.edge.polls import is_on, seconds
from coordinator.edge.recorder import Recorder
from coordinator.edge.rulings import BUDGETS_UNREAD, UNREAD, Rulings, by_brake
from coordinator.errors import Invalid, QuotaReached, Restarting, SignalboxError
from coordinator.identity import scopes
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import instants
from coordinator.lib.asgi import Receive, Scope
from coordinator.policy import brakes
from coordinator.policy.brakes import Braked
from coordinator.policy.tool_calls import AskedCall, Settled
from coordinator.policy.tool_rules import (
    ALLOW,
    ASK,
    DENY,
    NO_OPINION,
    OBSERVE,
    PartialCall,
    Ruling,
    stricter,
    strictest_possible,
)
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.reports import SessionLocation

log = logging.getLogger(__name__)

# Seconds a hook waits for a person where its address does not say (`?wait=`): some agents give up after 60.
WAIT = 50.0
LONGEST_WAIT = 6 * 3600.0
LIMIT = LIMITS["hook"][KEY]
BEFORE_DEADLINE = 0.5  # seconds that the denial of a call which a brake holds has on its way
SESSION_ID = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
NO_TOOL = "It names no tool."
LONGEST_LINE_SHOWN = 200  # characters; the card shows all of it
MAY_HOLD_LINES = "A rule may be about a shell line that runs while it is loaded:"
DECIDE_WITHIN = 3.0  # seconds for which a hook that policy or people decide may wait for the database
CANNOT_RUN: Settled = {
    "status": "denied",
    "allowed": False,
    "reason": "the edited call holds a mask whose secret is not known here. Ask again.",
}


class HookDoor:
    """The door for the hooks of one agent. One an agent and process."""

    def __init__(
        self,
        auth: Authenticator,
        recorder: Recorder,
        rulings: Rulings,
        asker: Asker,
        bodies: Bodies,
        *,
        gate: BrakeGate,
        notes: Notes,
    ) -> None:
        self.dialect = recorder.dialect
        self._notes = notes
        self._gate = gate
        self._auth = auth
        self._bodies = bodies
        self._recorder = recorder
        self._rulings = rulings
        self._asker = asker

    async def read(self, call: GuardedCall, scope: Scope, receive: Receive) -> None:
        """Read the hook of a caller without a valid key, as far as a stranger may send. Raises as `answer` does."""
        with self._bodies.hold(f"address:{network_of(peer_of(scope).address)}") as held:
            await self._read(call, held, scope, receive, STRANGER)

    async def _read(
        self, call: GuardedCall, held: BodyShare, scope: Scope, receive: Receive, limit: BodyLimit = LIMIT
    ) -> tuple[Hook, int]:
        """Read the hook into `call`; return it and its length. Raises as Held.read does, and Invalid."""
        # Hooks that are told later keep their order by it.
        headers, arrived = headers_of(scope), timezone.now()
        call.reading = True
        try:
            call.body = await held.read(receive, headers, limit)
            read = functools.partial(self._hook_of, delivery=delivery_of(headers), arrived=arrived)
            call.hook = await held.decoded(read, call.body)
        except SignalboxError as problem:
            call.unread = str(problem.detail)
            raise
        call.unread = call.hook.unread
        return call.hook, len(call.body)

    async def answer(self, call: GuardedCall, scope: Scope, receive: Receive) -> Reply | None:
        """Take one hook in and return its answer, once it is known; None for no opinion.

        What policy says of the call is in `call` before anything else is done about it. Raises whatever goes
        wrong: edge.call_guard answers then.
        """
        headers = headers_of(scope)
        admission = await self._auth.admit(scope, headers, *scopes.AGENT_SCOPES)
        admission.caller = admission.caller.speaking_as(self.dialect.name)
        call.caller = admission.caller
        wait = seconds(scope, "wait", default=WAIT, most=LONGEST_WAIT)
        with self._bodies.hold(f"key:{admission.caller.id}") as held:
            hook, size = await self._read(call, held, scope, receive)
            if is_on(scope, "skill_hook"):
                hook = call.hook = self.dialect.lines_have_hooks(hook)
            where = where_of(self.dialect.name, hook, headers, admission.caller)
            delivery = delivery_of(headers)
            asks = _HookRequest(
                admission,
                where,
                wait,
                size,
                receive,
                delivery.sent_as,
                has_no_prompt=is_on(scope, "hold"),
                resumes_as=entrypoint_of(headers) if is_on(scope, "defer") else None,
            )
            if delivery.age is not None:
                call.late, call.ruling = True, NO_OPINION
                await self._told_late(hook, asks, delivery.denied)
                return None
            reply = await self._answer(call, hook, asks)
            if reply is None or reply.denial is None:
                await self._note_end(hook, asks)
            return await self._with_notes(call, hook, reply, asks)

    async def _with_notes(
        self, call: GuardedCall, hook: Hook, reply: Reply | None, asks: _HookRequest
    ) -> Reply | None:
        """Return the reply with the notes that people wrote to the session's agent."""
        # A tool that asks reads no note, and a run that ends here to be resumed later would lose it.
        if asks.has_no_prompt or (asks.resumes_as is not None and self.dialect.is_call(hook)):
            return reply
        if not self.dialect.takes_note(hook) or not await self._notes.any():
            return reply
        if reply is None and call.ruling is not None and call.ruling.decision in {ASK, DENY}:
            return None  # the guard has the last word
        try:
            known = await self._recorder.session_of(hook, asks.where, within=DECIDE_WITHIN)
            through = f"{AGENT_TITLES[self.dialect.name]}'s hook {hook.name}"
            text = await self._notes.take(known.session_id, through, given_to=asks.sent_as)
            return self.dialect.with_note(hook, reply, text) if text else reply
        except Exception as problem:  # what was decided goes out all the same
            log.warning("A hook %s is answered without its note: %s", hook.name, str(problem).strip())
            return reply

    async def _note_end(self, hook: Hook, asks: _HookRequest) -> None:
        """Write the end of a call that runs and of whose result no hook will tell."""
        if hook.name not in self.dialect.without_result:
            return
        with contextlib.suppress(SignalboxError):  # what was decided goes out all the same
            known = await self._recorder.session_of(hook, asks.where, within=DECIDE_WITHIN)
            if (ended := self.dialect.let_run(hook, known.session_id)) is not None:
                await self._recorder.write(hook, [ended], 0, asks.caller)

    async def _told_late(self, hook: Hook, asks: _HookRequest, denied: str | None) -> None:
        await self._recorder.observe(hook, asks.where, asks.size)
        if denied is not None and self.dialect.is_call(hook):
            known = await self._recorder.session_of(hook, asks.where)
            about = self.dialect.call_of(hook, known.session_id, asks.caller.agent_id, asks.where.hostname)
            await self._note_denial(hook, about, denied, asks)
        else:
            await self._note_end(hook, asks)

    async def _note_denial(self, hook: Hook, call: AskedCall, why: str, asks: _HookRequest) -> None:
        """Write the result of a call that does not run; no hook will tell it."""
        if call.call_id is not None:
            denied = self.dialect.denied(hook, call.session_id, call.call_id, why)
            await self._recorder.write(hook, [denied], 0, asks.caller)

    async def _note_unasked(
        self, hook: Hook, call: AskedCall, ruling: Ruling, problem: SignalboxError, asks: _HookRequest
    ) -> None:
        """Write the result of a call about which nobody could be asked, if the guard denies it for that."""
        if isinstance(problem, Restarting) and comes_again(asks.sent_as, ruling):
            return
        reply = self.dialect.unasked(hook.name, ruling, why_unasked(problem, ruling))
        if reply is not None and reply.denial is not None:
            with contextlib.suppress(SignalboxError):
                await self._note_denial(hook, call, reply.denial, asks)

    async def _answer(self, call: GuardedCall, hook: Hook, asks: _HookRequest) -> Reply | None:
        if not self.dialect.is_call(hook):
            await self._recorder.observe(hook, asks.where, asks.size)
            return None
        if hook.unread is not None:
            return await self._unread(call, hook, hook.unread, asks)
        ruling = await self._rulings.on(
            hook.tool, self.dialect.about(hook), asks.caller.agent_id, self.dialect.name, asks.caller.id
        )
        if hook.shell_lines is not None:
            ruling = await self._with_shell_lines(ruling, hook.shell_lines, asks)
        ruling = stricter(ruling, await self._by_budgets(hook, asks))
        if asks.has_no_prompt and (ruling.decision == ASK or _is_silent(ruling, hook, self.dialect)):
            # Whoever asks has nobody else to ask, and takes no answer for no.
            ruling = replace(ruling, decision=ASK, wait_seconds=None, deny_at_deadline=True)
        call.ruling = stricter(ruling, self._rulings.by_brakes(asks.agents, asks.where.hostname))
        decides = ruling.decision != OBSERVE or hook.name in self.dialect.prompts
        is_call = self.dialect.is_call(hook)
        # What is decided goes on without a database that is busy: it is in the log, and will be in the session.
        in_force: tuple[Braked, ...] | None = None
        # A brake holds the calls, too, of a key that has reached its quota.
        expected = (SignalboxError,) if decides else (QuotaReached,) if is_call else ()
        with contextlib.suppress(*expected):
            in_force = await self._recorder.observe(hook, asks.where, asks.size, ruling, look=brakes.in_force)
        reply = await self._braked(call, hook, ruling, asks, in_force)
        if reply is None and decides:
            reply = await self._decided(hook, ruling, asks)
            if ruling.decision != DENY and (reply is None or reply.denial is None):
                # It waited for a person, or for the database; meanwhile a brake may have been put on.
                reply = await self._braked(call, hook, ruling, asks) or reply
        return reply

    async def _with_shell_lines(self, ruling: Ruling, shell: ShellLines, asks: _HookRequest) -> Ruling:
        """Return the stricter of what policy says of a call and of the shell lines that run as part of it.

        Nothing is allowed for its lines' sake. Where there may be others than are known, a person is asked wherever a
        rule might ask about them or deny them.
        """
        agent_id, program = asks.caller.agent_id, self.dialect.name
        of_lines = NO_OPINION
        for line, given in zip(shell.lines, shell.inputs, strict=True):
            text = self.dialect.subject(shell.tool, given)
            found = await self._rulings.on(shell.tool, text, agent_id, program, asks.caller.id)
            if found.decision in {ASK, DENY}:
                why = (
                    f"It runs the shell line {line[:LONGEST_LINE_SHOWN]!r} while it is loaded. {found.reason}"
                )
                of_lines = stricter(of_lines, replace(found, reason=why))
        if shell.problem:
            rules = await self._rulings.rules()
            any_line = PartialCall(shell.tool, None, agent_id, agent_known=True, program=program)
            found = UNREAD if rules is None else strictest_possible(rules, any_line)
            if found.decision in {ASK, DENY}:
                why = f"{shell.problem} {MAY_HOLD_LINES} {found.reason}"
                is_certain = found.deny_at_deadline or found.decision == DENY
                found = replace(found, decision=ASK, reason=why, deny_at_deadline=is_certain)
                of_lines = stricter(of_lines, found)
        ruling = NO_OPINION if shell.is_persons else ruling
        return stricter(ruling, of_lines) if of_lines.decision in {ASK, DENY} else ruling

    async def _unread(self, call: GuardedCall, hook: Hook, why: str, asks: _HookRequest) -> Reply | None:
        """Deny a call whose body could not be read where policy may ask about it or deny it; have it written."""
        await self._rulings.refresh()
        tool = hook.tool if hook.names_tool else None
        known = PartialCall(tool, None, asks.caller.agent_id, agent_known=True, program=self.dialect.name)
        worst = self._rulings.strictest_possible(known)
        if asks.has_no_prompt:  # whoever asks takes no answer for no
            worst = stricter(worst, Ruling(ASK, deny_at_deadline=True))
        call.ruling = self.dialect.by_unread(hook.name, worst, why)
        reply = self.dialect.unasked(hook.name, call.ruling, "")
        with contextlib.suppress(SignalboxError) if reply else contextlib.nullcontext():
            await self._recorder.observe(hook, asks.where, asks.size)
        if reply is not None and reply.denial is not None:
            with contextlib.suppress(SignalboxError):
                known_session = await self._recorder.session_of(hook, asks.where, within=DECIDE_WITHIN)
                about = self.dialect.call_of(
                    hook, known_session.session_id, asks.caller.agent_id, asks.where.hostname
                )
                await self._note_denial(hook, about, reply.denial, asks)
        return reply

    async def _by_budgets(self, hook: Hook, asks: _HookRequest) -> Ruling:
        """Return what the budgets say of the call; its session is there before its first call is decided."""
        if not self._rulings.has_budgets:
            return NO_OPINION
        try:
            known = await self._recorder.session_of(hook, asks.where, within=DECIDE_WITHIN)
        except SignalboxError:
            return BUDGETS_UNREAD
        caller = asks.caller
        return await self._rulings.budgets_on(
            hook.tool, asks.agents, known.session_id, agent_id=caller.agent_id, key_id=caller.id
        )

    async def _braked(
        self,
        call: GuardedCall,
        hook: Hook,
        ruling: Ruling,
        asks: _HookRequest,
        in_force: tuple[Braked, ...] | None = None,
    ) -> Reply | None:
        """Hold the call while a brake is on; return the denial of one that is not released in time, else None.

        `in_force`: the brakes that were on just now; None where the gate must ask.
        """
        if in_force == ():
            call.ruling = ruling
            return None
        passing = functools.partial(
            self._gate.pass_through,
            asks.agents,
            asker=asks.caller.actor.name,
            still_allowed=asks.admission.still_allowed,
        )
        host = asks.where.hostname
        brake = await passing(host, wait=0)
        if brake is not None and host is None:
            host = await self._known_host(hook, asks)
            brake = await passing(host, wait=0) if host is not None else brake
        if brake is not None:
            call.ruling = Ruling(ASK, brake.words, f"brake {brake.id}", deny_at_deadline=True)
            brake = await passing(host, wait=asks.left - BEFORE_DEADLINE)
        if brake is None:
            call.ruling = ruling
            return None
        call.ruling = by_brake(brake)
        reply = self.dialect.by_ruling(hook, call.ruling)
        if reply is not None and reply.denial is not None:
            with contextlib.suppress(SignalboxError):
                known = await self._recorder.session_of(hook, asks.where, within=DECIDE_WITHIN)
                about = self.dialect.call_of(
                    hook, known.session_id, asks.caller.agent_id, asks.where.hostname
                )
                await self._note_denial(hook, about, reply.denial, asks)
        return reply

    async def _known_host(self, hook: Hook, asks: _HookRequest) -> str | None:
        """Return where the session of a hook that says no host is known to run."""
        with contextlib.suppress(SignalboxError):
            known = await self._recorder.session_of(hook, asks.where, within=DECIDE_WITHIN)
            return await self._gate.host_of(known.session_id)
        return None

    async def _decided(self, hook: Hook, ruling: Ruling, asks: _HookRequest) -> Reply | None:
        """Return the hook's answer when all is written, None for no opinion. Raises Gone for a caller that left."""
        known = await self._recorder.session_of(hook, asks.where, within=DECIDE_WITHIN)
        if known.driven and ruling.decision == OBSERVE:
            return None  # its runner is asked, and puts the question before people in the agent's own words
        call = self.dialect.call_of(hook, known.session_id, asks.caller.agent_id, asks.where.hostname)
        reply: Reply | None
        if ruling.decision in {ALLOW, DENY}:
            note = functools.partial(
                tool_calls.note_ruling, call, ruling, by=asks.caller.actor, now=timezone.now()
            )
            await self._recorder.perform(note, within=DECIDE_WITHIN)
            reply = self.dialect.by_ruling(hook, ruling)
        else:
            try:
                call, reply = await self._asked(hook, call, ruling, asks)
            except SignalboxError as problem:
                await self._note_unasked(hook, call, ruling, problem, asks)
                raise
        if reply is not None and reply.denial is not None:
            with contextlib.suppress(SignalboxError):  # likewise: a person's word holds, too
                await self._note_denial(hook, call, reply.denial, asks)
        return reply

    async def _asked(
        self, hook: Hook, call: AskedCall, ruling: Ruling, asks: _HookRequest
    ) -> tuple[AskedCall, Reply | None]:
        wait = min(asks.wait, ruling.wait_seconds or asks.wait)
        silence = self.dialect.by_silence(hook, wait, deny=ruling.deny_at_deadline)
        call, settled = await self._asker.ask(
            call,
            ruling,
            by=asks.caller.actor,
            wait=wait,
            outlasts=silence is not None and silence.denial is not None,
            still_allowed=asks.admission.still_allowed,
            receive=asks.receive,
            sent_as=asks.sent_as if ruling.deny_at_deadline else None,
        )
        if settled["status"] == "expired":
            return call, silence
        if settled["status"] == tool_calls.HELD:
            return call, self._held(hook, settled, asks)
        if settled["status"] == "elsewhere":
            return call, None
        unmasked = tool_calls.unmasked(settled, call)
        return call, self.dialect.by_person(hook, call, unmasked or CANNOT_RUN)

    def _held(self, hook: Hook, settled: Settled, asks: _HookRequest) -> Reply | None:
        """Return the answer to a call that can still be approved: ask again, come back later, or make it again."""
        if asks.has_no_prompt:
            return Reply({"signalbox": {"held": settled["request_id"]}})
        later = self.dialect.postpone(hook, asks.resumes_as) if asks.resumes_as else None
        return later or self.dialect.told_to_wait(hook, settled)

    def _hook_of(self, body: bytes, delivery: Delivery, arrived: datetime) -> Hook:
        told = arrived - timedelta(seconds=delivery.age or 0.0)
        hook = self.dialect.read(body, instants.canonical(told))
        if hook.unread is not None:  # one that may be a call counts as one
            hook = replace(hook, name=self.dialect.call_in(body) or hook.name)
        elif hook.name in self.dialect.calls and hook.needs_tool and not hook.names_tool:
            hook = replace(hook, unread=NO_TOOL)
        return replace(hook, sent_as=delivery.sent_as) if delivery.sent_as else hook


@dataclass(frozen=True, slots=True)
class _HookRequest:
    """Whose hook it is, from where, how long it may wait, its length in bytes, its line, and its id if it has one.

    One that `has_no_prompt` asks only here, and goes on asking; one of an agent that says how it was started
    (`resumes_as`) may be ended where nobody answers, and resumed.
    """

    admission: Admission
    where: SessionLocation
    wait: float
    size: int
    receive: Receive
    sent_as: str | None
    has_no_prompt: bool = False
    resumes_as: str | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """How many seconds of its wait are left."""
        return self.began + self.wait - time.monotonic()

    @property
    def agents(self) -> tuple[str | None, ...]:
        """The names by which a brake may mean its agent."""
        return (self.caller.agent_id, self.where.agent_name, self.where.profile)

    @property
    def caller(self) -> KeyIdentity:
        """Whose hook it is."""
        return self.admission.caller


def _is_silent(ruling: Ruling, hook: Hook, dialect: Dialect) -> bool:
    """Say whether no rule speaks of a call about which its agent asks."""
    return ruling.decision == OBSERVE and hook.name in dialect.prompts


def entrypoint_of(headers: Headers) -> str | None:
    """Return how the agent was started, as a header says that settings can add."""
    told = headers.get(b"x-signalbox-entrypoint", b"").decode("latin-1").strip()
    return None if told.startswith("$") else told or None


def where_of(agent: str, hook: Hook, headers: Headers, caller: KeyIdentity) -> SessionLocation:
    """Return where the hook's session runs; the machine's name comes as a header, which settings can add."""
    host = unquote_to_bytes(headers.get(b"x-signalbox-host", b"")).decode("utf-8", "replace").strip()
    host = "" if host.startswith("$") else mended(host)  # a variable that was not filled in
    return SessionLocation(
        project_dir=hook.folder,
        hostname=host[:255] or None,
        agent_name=caller.agent_id or agent,
        profile=agent,
        by=caller,
        driven=driven_of(headers),
        parent=hook.parent,
    )


def driven_of(headers: Headers) -> str | None:
    """Return the session of ours for which a runner started the agent, where its hook passes that on."""
    told = headers.get(b"x-signalbox-session", b"").decode("latin-1").strip()
    return told if SESSION_ID.fullmatch(told) else None


def longest(scope: Scope) -> float:
    """Return for how many seconds the hook waits for a person, as its address says."""
    try:
        return seconds(scope, "wait", default=WAIT, most=LONGEST_WAIT)
    except Invalid:  # the door refuses it
        return WAIT
