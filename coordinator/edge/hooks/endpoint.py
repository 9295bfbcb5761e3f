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

from coordinator.actions.sessions import tool_calls
from coordinator.dialects.contract import AgentReply, Dialect
from coordinator.dialects.hooks import AgentHook, ShellLines, replace_unstorable_text
from coordinator.edge.hooks.deliveries import HookDelivery, parse_hook_delivery
from coordinator.edge.hooks.guard import GuardedCall, can_be_redelivered, explain_unasked_call
from coordinator.edge.hooks.notes import PendingNotes
from coordinator.edge.hooks.pending_hooks import HookApprovalWaiter
from coordinator.edge.hooks.recorder import HookRecorder
from coordinator.edge.http.auth import Admission, Authenticator
from coordinator.edge.http.bodies import BodyReservation, RequestBodies
from coordinator.edge.http.client_addresses import find_client_network, get_client_address
from coordinator.edge.http.messages import Headers, get_operation, get_request_headers
from coordinator.edge.policy.brake_gate import BrakeGate
from coordinator.edge.policy.rulings import BUDGETS_UNREAD, UNREAD, PolicyRulings, build_brake_ruling
from coordinator.edge.polling.endpoints import get_seconds_parameter, is_parameter_on
from coordinator.errors import QuotaReached, ServiceRestarting, SignalboxError, UnprocessableRequest
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import instants
from coordinator.lib.asgi import Receive, Scope
from coordinator.lib.body_limits import STRANGER, BodyLimit
from coordinator.policy.limits import brakes
from coordinator.policy.limits.brakes import ActiveBrake
from coordinator.policy.requests.tool_calls import Settled, ToolCallRequest
from coordinator.policy.rules.tool_rules import (
    ALLOW,
    ASK,
    DENY,
    NO_OPINION,
    OBSERVE,
    PartialCall,
    Ruling,
    stricter_ruling,
    strictest_possible_ruling,
)
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.reports import SessionLocation

log = logging.getLogger(__name__)

# Seconds a hook waits for a person where its address does not say (`?wait=`): some agents give up after 60.
WAIT = 50.0
LONGEST_WAIT = 6 * 3600.0
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


class HookEndpoint:
    """The door for the hooks of one agent. One an agent and process."""

    def __init__(
        self,
        auth: Authenticator,
        recorder: HookRecorder,
        rulings: PolicyRulings,
        asker: HookApprovalWaiter,
        bodies: RequestBodies,
        *,
        gate: BrakeGate,
        notes: PendingNotes,
    ) -> None:
        self.dialect = recorder.dialect
        self._notes = notes
        self._gate = gate
        self._auth = auth
        self._bodies = bodies
        self._recorder = recorder
        self._rulings = rulings
        self._asker = asker

    async def read_hook(self, call: GuardedCall, scope: Scope, receive: Receive) -> None:
        """Read the hook of a caller without a valid key, as far as a stranger may send. Raises as `answer` does."""
        with self._bodies.reserve_body(
            f"address:{find_client_network(get_client_address(scope).address)}"
        ) as reservation:
            await self.read_hook_body(call, reservation, scope, receive, STRANGER)

    async def read_hook_body(
        self,
        call: GuardedCall,
        held: BodyReservation,
        scope: Scope,
        receive: Receive,
        limit: BodyLimit,
    ) -> tuple[AgentHook, int]:
        """Read the hook into `call`; return it and its length. Raises as Held.read does, and UnprocessableRequest."""
        # Hooks that are told later keep their order by it.
        headers, arrived = get_request_headers(scope), timezone.now()
        call.reading = True
        try:
            call.body = await held.read_body(receive, headers, limit)
            read = functools.partial(
                self.parse_hook_body, delivery=parse_hook_delivery(headers), arrived=arrived
            )
            call.hook = await held.decode_received_body(read, call.body)
        except SignalboxError as problem:
            call.unread = str(problem.detail)
            raise
        call.unread = call.hook.unread
        return call.hook, len(call.body)

    async def answer_hook(self, call: GuardedCall, scope: Scope, receive: Receive) -> AgentReply | None:
        """Take one hook in and return its answer, once it is known; None for no opinion.

        What policy says of the call is in `call` before anything else is done about it. Raises whatever goes
        wrong: edge.call_guard answers then.
        """
        headers = get_request_headers(scope)
        admission = await self._auth.admit_program(scope, headers)
        admission.caller = admission.caller.restrict_to_agent(self.dialect.name)
        call.caller = admission.caller
        wait = get_seconds_parameter(scope, "wait", default=WAIT, most=LONGEST_WAIT)
        with self._bodies.reserve_body(f"key:{admission.caller.id}") as reservation:
            hook, size = await self.read_hook_body(
                call, reservation, scope, receive, get_operation(scope).body.key
            )
            if is_parameter_on(scope, "skill_hook"):
                hook = call.hook = self.dialect.lines_have_hooks(hook)
            where = build_session_location(self.dialect.name, hook, headers, admission.caller)
            delivery = parse_hook_delivery(headers)
            asks = HookRequest(
                admission,
                where,
                wait,
                size,
                receive,
                delivery.sent_as,
                has_no_prompt=is_parameter_on(scope, "hold"),
                resumes_as=parse_entrypoint_header(headers) if is_parameter_on(scope, "defer") else None,
            )
            if delivery.age is not None:
                call.late, call.ruling = True, NO_OPINION
                await self.record_late_hook(hook, asks, delivery.denied)
                return None
            reply = await self.decide_hook_reply(call, hook, asks)
            if reply is None or reply.denial is None:
                await self.record_unreported_end(hook, asks)
            return await self.add_notes_to_reply(call, hook, reply, asks)

    async def add_notes_to_reply(
        self, call: GuardedCall, hook: AgentHook, reply: AgentReply | None, asks: HookRequest
    ) -> AgentReply | None:
        """Return the reply with the notes that people wrote to the session's agent."""
        # A tool that asks reads no note, and a run that ends here to be resumed later would lose it.
        if asks.has_no_prompt or (asks.resumes_as is not None and self.dialect.is_call_hook(hook)):
            return reply
        if not self.dialect.can_carry_note(hook) or not await self._notes.check_pending_notes():
            return reply
        if reply is None and call.ruling is not None and call.ruling.decision in {ASK, DENY}:
            return None  # the guard has the last word
        try:
            hook_session = await self._recorder.find_hook_session(hook, asks.where, within=DECIDE_WITHIN)
            through = f"{AGENT_TITLES[self.dialect.name]}'s hook {hook.name}"
            text = await self._notes.take_session_notes(
                hook_session.session_id, through, given_to=asks.sent_as
            )
            return self.dialect.add_note_to_reply(hook, reply, text) if text else reply
        except Exception as problem:  # what was decided goes out all the same
            log.warning("A hook %s is answered without its note: %s", hook.name, str(problem).strip())
            return reply

    async def record_unreported_end(self, hook: AgentHook, asks: HookRequest) -> None:
        """Write the end of a call that runs and of whose result no hook will tell."""
        if hook.name not in self.dialect.without_result:
            return
        with contextlib.suppress(SignalboxError):  # what was decided goes out all the same
            hook_session = await self._recorder.find_hook_session(hook, asks.where, within=DECIDE_WITHIN)
            if (ended := self.dialect.build_unreported_call_end(hook, hook_session.session_id)) is not None:
                await self._recorder.write_hook_events(hook, [ended], 0, asks.hook_caller)

    async def record_late_hook(self, hook: AgentHook, asks: HookRequest, denied: str | None) -> None:
        await self._recorder.record_hook(hook, asks.where, asks.size)
        if denied is not None and self.dialect.is_call_hook(hook):
            hook_session = await self._recorder.find_hook_session(hook, asks.where)
            about = self.dialect.build_asked_call(
                hook, hook_session.session_id, asks.hook_caller.agent_id, asks.where.hostname
            )
            await self.record_denied_call(hook, about, denied, asks)
        else:
            await self.record_unreported_end(hook, asks)

    async def record_denied_call(
        self, hook: AgentHook, call: ToolCallRequest, why: str, asks: HookRequest
    ) -> None:
        """Write the result of a call that does not run; no hook will tell it."""
        if call.call_id is not None:
            denied = self.dialect.build_denied_call_result(hook, call.session_id, call.call_id, why)
            await self._recorder.write_hook_events(hook, [denied], 0, asks.hook_caller)

    async def record_unasked_call(
        self,
        hook: AgentHook,
        call: ToolCallRequest,
        ruling: Ruling,
        problem: SignalboxError,
        asks: HookRequest,
    ) -> None:
        """Write the result of a call about which nobody could be asked, if the guard denies it for that."""
        if isinstance(problem, ServiceRestarting) and can_be_redelivered(asks.sent_as, ruling):
            return
        reply = self.dialect.reply_without_person(hook.name, ruling, explain_unasked_call(problem, ruling))
        if reply is not None and reply.denial is not None:
            with contextlib.suppress(SignalboxError):
                await self.record_denied_call(hook, call, reply.denial, asks)

    async def decide_hook_reply(
        self, call: GuardedCall, hook: AgentHook, asks: HookRequest
    ) -> AgentReply | None:
        if not self.dialect.is_call_hook(hook):
            await self._recorder.record_hook(hook, asks.where, asks.size)
            return None
        if hook.unread is not None:
            return await self.answer_unread_hook(call, hook, hook.unread, asks)
        ruling = await self._rulings.judge_tool_call(
            hook.tool_name,
            self.dialect.call_subject(hook),
            asks.hook_caller.agent_id,
            self.dialect.name,
            asks.hook_caller.id,
        )
        if hook.shell_lines is not None:
            ruling = await self.apply_shell_line_rulings(ruling, hook, hook.shell_lines, asks)
        ruling = stricter_ruling(ruling, await self.find_hook_budget_ruling(hook, asks))
        if asks.has_no_prompt and (ruling.decision == ASK or has_no_ruling(ruling, hook, self.dialect)):
            # Whoever asks has nobody else to ask, and takes no answer for no.
            ruling = replace(ruling, decision=ASK, wait_seconds=None, deny_at_deadline=True)
        call.ruling = stricter_ruling(
            ruling, self._rulings.find_brake_ruling(asks.possible_agent_names, asks.where.hostname)
        )
        decides = ruling.decision != OBSERVE or hook.name in self.dialect.prompts
        is_call = self.dialect.is_call_hook(hook)
        # What is decided goes on without a database that is busy: it is in the log, and will be in the session.
        in_force: tuple[ActiveBrake, ...] | None = None
        # A brake holds the calls, too, of a key that has reached its quota.
        expected = (SignalboxError,) if decides else (QuotaReached,) if is_call else ()
        with contextlib.suppress(*expected):
            in_force = await self._recorder.record_hook(
                hook, asks.where, asks.size, ruling, look=brakes.load_active_brakes
            )
        reply = await self.wait_for_brake(call, hook, ruling, asks, in_force)
        if reply is None and decides:
            reply = await self.decide_hook_call(hook, ruling, asks)
            if ruling.decision != DENY and (reply is None or reply.denial is None):
                # It waited for a person, or for the database; meanwhile a brake may have been put on.
                reply = await self.wait_for_brake(call, hook, ruling, asks) or reply
        return reply

    async def apply_shell_line_rulings(
        self, ruling: Ruling, hook: AgentHook, shell: ShellLines, asks: HookRequest
    ) -> Ruling:
        """Return the stricter of what policy says of a call and of the shell lines that run as part of it.

        Nothing is allowed for its lines' sake. Where there may be others than are known, a person is asked wherever a
        rule might ask about them or deny them.
        """
        agent_id, program = asks.hook_caller.agent_id, self.dialect.name
        of_lines = NO_OPINION
        for line, text in zip(shell.lines, self.dialect.shell_line_subjects(hook, shell), strict=True):
            line_ruling = await self._rulings.judge_tool_call(
                shell.tool, text, agent_id, program, asks.hook_caller.id
            )
            if line_ruling.decision in {ASK, DENY}:
                line_shown = repr(line[:LONGEST_LINE_SHOWN])
                line_reason = f"It runs the shell line {line_shown} while it is loaded. {line_ruling.reason}"
                of_lines = stricter_ruling(of_lines, replace(line_ruling, reason=line_reason))
        if shell.problem:
            rules = await self._rulings.load_current_rules()
            any_line = PartialCall(shell.tool, None, agent_id, agent_known=True, program=program)
            line_ruling = UNREAD if rules is None else strictest_possible_ruling(rules, any_line)
            if line_ruling.decision in {ASK, DENY}:
                line_reason = f"{shell.problem} {MAY_HOLD_LINES} {line_ruling.reason}"
                is_certain = line_ruling.deny_at_deadline or line_ruling.decision == DENY
                line_ruling = replace(
                    line_ruling, decision=ASK, reason=line_reason, deny_at_deadline=is_certain
                )
                of_lines = stricter_ruling(of_lines, line_ruling)
        ruling = NO_OPINION if shell.is_persons else ruling
        return stricter_ruling(ruling, of_lines) if of_lines.decision in {ASK, DENY} else ruling

    async def answer_unread_hook(
        self, call: GuardedCall, hook: AgentHook, why: str, asks: HookRequest
    ) -> AgentReply | None:
        """Deny a call whose body could not be read where policy may ask about it or deny it; have it written."""
        await self._rulings.refresh_rules()
        tool = hook.tool_name if hook.has_tool_name else None
        partial_call = PartialCall(
            tool, None, asks.hook_caller.agent_id, agent_known=True, program=self.dialect.name
        )
        worst = self._rulings.find_strictest_possible(partial_call)
        if asks.has_no_prompt:  # whoever asks takes no answer for no
            worst = stricter_ruling(worst, Ruling(ASK, deny_at_deadline=True))
        call.ruling = self.dialect.rule_on_unreadable_call(hook.name, worst, why)
        reply = self.dialect.reply_without_person(hook.name, call.ruling, "")
        with contextlib.suppress(SignalboxError) if reply else contextlib.nullcontext():
            await self._recorder.record_hook(hook, asks.where, asks.size)
        if reply is not None and reply.denial is not None:
            with contextlib.suppress(SignalboxError):
                known_session = await self._recorder.find_hook_session(hook, asks.where, within=DECIDE_WITHIN)
                about = self.dialect.build_asked_call(
                    hook, known_session.session_id, asks.hook_caller.agent_id, asks.where.hostname
                )
                await self.record_denied_call(hook, about, reply.denial, asks)
        return reply

    async def find_hook_budget_ruling(self, hook: AgentHook, asks: HookRequest) -> Ruling:
        """Return what the budgets say of the call; its session is there before its first call is decided."""
        if not self._rulings.has_budgets:
            return NO_OPINION
        try:
            hook_session = await self._recorder.find_hook_session(hook, asks.where, within=DECIDE_WITHIN)
        except SignalboxError:
            return BUDGETS_UNREAD
        caller = asks.hook_caller
        return await self._rulings.judge_call_budgets(
            hook.tool_name,
            asks.possible_agent_names,
            hook_session.session_id,
            agent_id=caller.agent_id,
            key_id=caller.id,
        )

    async def wait_for_brake(
        self,
        call: GuardedCall,
        hook: AgentHook,
        ruling: Ruling,
        asks: HookRequest,
        in_force: tuple[ActiveBrake, ...] | None = None,
    ) -> AgentReply | None:
        """Hold the call while a brake is on; return the denial of one that is not released in time, else None.

        `in_force`: the brakes that were on just now; None where the gate must ask.
        """
        if in_force == ():
            call.ruling = ruling
            return None
        passing = functools.partial(
            self._gate.wait_for_brake_release,
            asks.possible_agent_names,
            asker=asks.hook_caller.caller_actor.name,
            still_allowed=asks.admission.require_still_allowed,
        )
        host = asks.where.hostname
        brake = await passing(host, wait=0)
        if brake is not None and host is None:
            host = await self.find_known_host(hook, asks)
            brake = await passing(host, wait=0) if host is not None else brake
        if brake is not None:
            call.ruling = Ruling(ASK, brake.agent_message, f"brake {brake.id}", deny_at_deadline=True)
            brake = await passing(host, wait=asks.remaining_wait - BEFORE_DEADLINE)
        if brake is None:
            call.ruling = ruling
            return None
        call.ruling = build_brake_ruling(brake)
        reply = self.dialect.reply_with_ruling(hook, call.ruling)
        if reply is not None and reply.denial is not None:
            with contextlib.suppress(SignalboxError):
                hook_session = await self._recorder.find_hook_session(hook, asks.where, within=DECIDE_WITHIN)
                about = self.dialect.build_asked_call(
                    hook, hook_session.session_id, asks.hook_caller.agent_id, asks.where.hostname
                )
                await self.record_denied_call(hook, about, reply.denial, asks)
        return reply

    async def find_known_host(self, hook: AgentHook, asks: HookRequest) -> str | None:
        """Return where the session of a hook that says no host is known to run."""
        with contextlib.suppress(SignalboxError):
            hook_session = await self._recorder.find_hook_session(hook, asks.where, within=DECIDE_WITHIN)
            return await self._gate.find_session_host(hook_session.session_id)
        return None

    async def decide_hook_call(self, hook: AgentHook, ruling: Ruling, asks: HookRequest) -> AgentReply | None:
        """Return the hook's answer when all is written, None for no opinion. Raises Gone for a caller that left."""
        hook_session = await self._recorder.find_hook_session(hook, asks.where, within=DECIDE_WITHIN)
        if hook_session.driven and ruling.decision == OBSERVE:
            return None  # its runner is asked, and puts the question before people in the agent's own words
        call = self.dialect.build_asked_call(
            hook, hook_session.session_id, asks.hook_caller.agent_id, asks.where.hostname
        )
        reply: AgentReply | None
        if ruling.decision in {ALLOW, DENY}:
            note = functools.partial(
                tool_calls.record_policy_ruling,
                call,
                ruling,
                by=asks.hook_caller.caller_actor,
                now=timezone.now(),
            )
            await self._recorder.perform_hook_work(note, within=DECIDE_WITHIN)
            reply = self.dialect.reply_with_ruling(hook, ruling)
        else:
            try:
                call, reply = await self.ask_person_about_hook(hook, call, ruling, asks)
            except SignalboxError as problem:
                await self.record_unasked_call(hook, call, ruling, problem, asks)
                raise
        if reply is not None and reply.denial is not None:
            with contextlib.suppress(SignalboxError):  # likewise: a person's word holds, too
                await self.record_denied_call(hook, call, reply.denial, asks)
        return reply

    async def ask_person_about_hook(
        self, hook: AgentHook, call: ToolCallRequest, ruling: Ruling, asks: HookRequest
    ) -> tuple[ToolCallRequest, AgentReply | None]:
        wait = min(asks.wait, ruling.wait_seconds or asks.wait)
        silence = self.dialect.reply_to_timeout(hook, wait, deny=ruling.deny_at_deadline)
        call, settled = await self._asker.wait_for_hook_verdict(
            call,
            ruling,
            by=asks.hook_caller.caller_actor,
            wait=wait,
            outlasts=silence is not None and silence.denial is not None,
            still_allowed=asks.admission.require_still_allowed,
            receive=asks.receive,
            sent_as=asks.sent_as if ruling.deny_at_deadline else None,
        )
        if settled["status"] == "expired":
            return call, silence
        if settled["status"] == tool_calls.HELD:
            return call, self.build_pending_reply(hook, settled, asks)
        if settled["status"] == "elsewhere":
            return call, None
        unmasked = tool_calls.restore_answer_secrets(settled, call)
        return call, self.dialect.reply_with_person_verdict(hook, call, unmasked or CANNOT_RUN)

    def build_pending_reply(self, hook: AgentHook, settled: Settled, asks: HookRequest) -> AgentReply | None:
        """Return the answer to a call that can still be approved: ask again, come back later, or make it again."""
        if asks.has_no_prompt:
            return AgentReply({"signalbox": {"held": settled["request_id"]}})
        later = self.dialect.postpone(hook, asks.resumes_as) if asks.resumes_as else None
        return later or self.dialect.deny_until_approved(hook, settled)

    def parse_hook_body(self, body: bytes, delivery: HookDelivery, arrived: datetime) -> AgentHook:
        sent_at = arrived - timedelta(seconds=delivery.age or 0.0)
        hook = self.dialect.read(body, instants.format_canonical_instant(sent_at))
        if hook.unread is not None:  # one that may be a call counts as one
            hook = replace(hook, name=self.dialect.call_in(body) or hook.name)
        elif hook.name in self.dialect.calls and hook.requires_tool_name and not hook.has_tool_name:
            hook = replace(hook, unread=NO_TOOL)
        return replace(hook, sent_as=delivery.sent_as) if delivery.sent_as else hook


@dataclass(frozen=True, slots=True)
class HookRequest:
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
    def remaining_wait(self) -> float:
        """How many seconds of its wait are left."""
        return self.began + self.wait - time.monotonic()

    @property
    def possible_agent_names(self) -> tuple[str | None, ...]:
        """The names by which a brake may mean its agent."""
        return (self.hook_caller.agent_id, self.where.agent_name, self.where.profile)

    @property
    def hook_caller(self) -> KeyIdentity:
        """Whose hook it is."""
        return self.admission.caller


def has_no_ruling(ruling: Ruling, hook: AgentHook, dialect: Dialect) -> bool:
    """Say whether no rule speaks of a call about which its agent asks."""
    return ruling.decision == OBSERVE and hook.name in dialect.prompts


def parse_entrypoint_header(headers: Headers) -> str | None:
    """Return how the agent was started, as a header says that settings can add."""
    entrypoint = headers.get(b"x-signalbox-entrypoint", b"").decode("latin-1").strip()
    return None if entrypoint.startswith("$") else entrypoint or None


def build_session_location(
    agent: str, hook: AgentHook, headers: Headers, caller: KeyIdentity
) -> SessionLocation:
    """Return where the hook's session runs; the machine's name comes as a header, which settings can add."""
    host = unquote_to_bytes(headers.get(b"x-signalbox-host", b"")).decode("utf-8", "replace").strip()
    host = "" if host.startswith("$") else replace_unstorable_text(host)  # a variable that was not filled in
    return SessionLocation(
        project_dir=hook.working_folder,
        hostname=host[:255] or None,
        agent_name=caller.agent_id or agent,
        profile=agent,
        by=caller,
        driven=parse_driven_session(headers),
        parent=hook.parent_session_id,
    )


def parse_driven_session(headers: Headers) -> str | None:
    """Return the session of ours for which a runner started the agent, where its hook passes that on."""
    session_header = headers.get(b"x-signalbox-session", b"").decode("latin-1").strip()
    return session_header if SESSION_ID.fullmatch(session_header) else None


def read_hook_wait(scope: Scope) -> float:
    """Return for how many seconds the hook waits for a person, as its address says."""
    try:
        return get_seconds_parameter(scope, "wait", default=WAIT, most=LONGEST_WAIT)
    except UnprocessableRequest:  # the door refuses it
        return WAIT
