"""`POST /hooks/{agent}`: one hook in five steps, authenticate → parse → decide → record → respond.

An agent is blocked until its hook is answered. So the answer is sent when the hook is committed, or after a short wait
where the database is slow (edge.hooks.recorder). A hook that policy or people decide is answered in any case:
edge.hooks.guard, which wraps this endpoint, ensures that. Only a status outside 2xx shows the person an error. Those
are for what a person must fix (a key, a body that is no hook) and for what is lost.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from urllib.parse import unquote_to_bytes

from django.utils import timezone

from coordinator.actions.sessions import tool_calls
from coordinator.dialects.dialect_base import AgentReply
from coordinator.dialects.hooks import AgentHook, ShellLines, replace_unstorable_text, wrap_non_object_value
from coordinator.edge.hooks.guard import (
    GuardedCall,
    can_hook_be_redelivered,
    describe_unanswered_call_for_person,
)
from coordinator.edge.hooks.notes import PendingNotes
from coordinator.edge.hooks.pending_hooks import HookApprovalWaiter
from coordinator.edge.hooks.recorder import HookRecorder
from coordinator.edge.http.auth import Admission, Authenticator
from coordinator.edge.http.bodies import BodyReservation, RequestBodies
from coordinator.edge.http.client_addresses import client_network_or_address, get_client_address_and_scheme
from coordinator.edge.http.messages import Headers, get_edge_operation_of_request, get_request_headers
from coordinator.edge.policy.brake_gate import BrakeGate
from coordinator.edge.policy.rulings import BUDGETS_UNREAD, UNREAD, PolicyRulings, build_brake_ruling
from coordinator.edge.polling.endpoints import get_seconds_query_parameter, is_query_parameter_on
from coordinator.errors import QuotaReached, ServiceRestarting, SignalboxError, UnprocessableRequest
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import instants
from coordinator.lib.asgi import Receive, Scope
from coordinator.lib.body_limits import STRANGER, BodyLimit
from coordinator.policy.limits import brakes
from coordinator.policy.limits.brakes import ActiveBrake
from coordinator.policy.requests.questions import is_question_tool
from coordinator.policy.requests.tool_calls import Settled, ToolCallRequest
from coordinator.policy.rules.call_history import TimedCall
from coordinator.policy.rules.tool_rules import (
    ALLOW,
    ASK,
    DENY,
    NO_OPINION,
    OBSERVE,
    PartialCall,
    Ruling,
    stricter_ruling,
    strictest_ruling_for_partial_call,
)
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.reports import RecordedHookSession, SessionLocation

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


@dataclass(slots=True)
class HookRequest:
    """One hook, whose it is, from where, and how it may be answered."""

    hook: AgentHook
    admission: Admission
    where: SessionLocation
    size: int  # of its body in bytes
    receive: Receive
    wait: float  # seconds it may wait for a person
    sent_as: str | None  # the id under which it may come again
    is_call: bool  # whether it reports a call before it runs
    has_no_prompt: bool  # the agent has nobody else to ask, and goes on asking
    resumes_as: str | None  # how an agent was started that may be ended where nobody answers, and resumed
    is_decided: bool = False  # whether policy or a person decides the call, and not the agent alone
    call: ToolCallRequest | None = None  # what it asks about, once its session is known
    began: float = field(default_factory=time.monotonic)

    @property
    def remaining_wait(self) -> float:
        """How many seconds of its wait are left."""
        return self.began + self.wait - time.monotonic()

    @property
    def caller(self) -> KeyIdentity:
        """Whose hook it is."""
        return self.admission.caller

    @property
    def possible_agent_names(self) -> tuple[str | None, ...]:
        """The names by which a brake may mean its agent."""
        return (self.caller.agent_id, self.where.agent_name, self.where.profile)


class HookEndpoint:
    """The endpoint for the hooks of one agent. One an agent and process."""

    def __init__(
        self,
        auth: Authenticator,
        recorder: HookRecorder,
        rulings: PolicyRulings,
        approval_waiter: HookApprovalWaiter,
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
        self._approval_waiter = approval_waiter

    async def process_hook_and_build_reply(
        self, call: GuardedCall, scope: Scope, receive: Receive
    ) -> AgentReply | None:
        """Take one hook through all steps and return its answer, once it is known; None for no opinion.

        What policy says of the call is in `call` before anything else is done about it. Raises whatever goes
        wrong: edge.hooks.guard answers then.
        """
        admission = await self.admit_hook_caller(call, scope)
        with self._bodies.reserve_body_during_block(f"key:{admission.caller.id}") as reservation:
            request = await self.read_hook_request(call, admission, reservation, scope, receive)
            if call.delivery.age is not None:  # its agent has gone on
                call.late, call.ruling = True, NO_OPINION
                await self.record_hook_delivered_too_late(request, call.delivery.denied)
                return None
            ruling = await self.judge_hook_call(call, request)
            active_brakes = await self.record_hook_and_find_brakes(request, ruling)
            return await self.decide_and_build_hook_reply(call, request, ruling, active_brakes)

    # --- authenticate -------------------------------------------------------------------------------------

    async def admit_hook_caller(self, call: GuardedCall, scope: Scope) -> Admission:
        """Return who posts the hook: a key that may write for this agent. Raises Unauthorized or Forbidden."""
        admission = await self._auth.admit_api_key_caller(scope, get_request_headers(scope))
        admission.caller = call.caller = admission.caller.restrict_to_agent(self.dialect.name)
        return admission

    # --- parse --------------------------------------------------------------------------------------------

    async def read_hook_request(
        self,
        call: GuardedCall,
        admission: Admission,
        reservation: BodyReservation,
        scope: Scope,
        receive: Receive,
    ) -> HookRequest:
        """Return the hook with what its address and headers say of it. Raises as `read_hook_body` does."""
        headers = get_request_headers(scope)
        wait = get_seconds_query_parameter(scope, "wait", default=WAIT, most=LONGEST_WAIT)
        hook, size = await self.read_hook_body(
            call, reservation, scope, receive, get_edge_operation_of_request(scope).body.key
        )
        if is_query_parameter_on(scope, "skill_hook"):
            hook = call.hook = self.dialect.copy_hook_marking_separate_lines(hook)
        return HookRequest(
            hook,
            admission,
            build_session_location(self.dialect.name, hook, headers, admission.caller),
            size,
            receive,
            wait,
            call.delivery.sent_as,
            is_call=self.dialect.is_call_hook(hook),
            has_no_prompt=is_query_parameter_on(scope, "hold"),
            resumes_as=parse_entrypoint_header(headers) if is_query_parameter_on(scope, "defer") else None,
        )

    async def read_hook_body(
        self,
        call: GuardedCall,
        reservation: BodyReservation,
        scope: Scope,
        receive: Receive,
        limit: BodyLimit,
    ) -> tuple[AgentHook, int]:
        """Read the hook into `call`; return it and its length in bytes.

        Raises UnprocessableRequest, and as `BodyReservation.read_body` does.
        """
        arrived = timezone.now() - timedelta(
            seconds=call.delivery.age or 0.0
        )  # late hooks keep their order by it

        def parse_hook(body: bytes) -> AgentHook:
            hook = self.dialect.read_hook(body, instants.format_canonical_instant(arrived))
            if hook.unread is not None:  # one that may be a call counts as one
                hook = replace(hook, name=self.dialect.guess_call_hook_name(body) or hook.name)
            elif hook.name in self.dialect.calls and hook.requires_tool_name and not hook.has_tool_name:
                hook = replace(hook, unread=NO_TOOL)
            return replace(hook, sent_as=call.delivery.sent_as) if call.delivery.sent_as else hook

        call.reading = True
        try:
            call.body = await reservation.read_body(receive, get_request_headers(scope), limit)
            call.hook = await reservation.decode_received_body(parse_hook, call.body)
        except SignalboxError as problem:
            call.unread = str(problem.detail)
            raise
        call.unread = call.hook.unread
        return call.hook, len(call.body)

    async def read_unauthenticated_hook_into_call(
        self, call: GuardedCall, scope: Scope, receive: Receive
    ) -> None:
        """Read the hook of a caller without a valid key, as far as a stranger may send.

        Raises as `read_hook_body` does.
        """
        sender = f"address:{client_network_or_address(get_client_address_and_scheme(scope).address)}"
        with self._bodies.reserve_body_during_block(sender) as reservation:
            await self.read_hook_body(call, reservation, scope, receive, STRANGER)

    # --- decide -------------------------------------------------------------------------------------------

    async def judge_hook_call(self, call: GuardedCall, request: HookRequest) -> Ruling:
        """Return what policy says of the call: rules, grants, shell lines and budgets; brakes wait in `respond`."""
        hook = request.hook
        if not request.is_call:
            return NO_OPINION
        if hook.unread is not None:
            call.ruling = await self.judge_unparseable_hook_call(request, hook.unread)
            request.is_decided = call.ruling.decision != OBSERVE
            return call.ruling
        ruling = await self._rulings.judge_tool_call(
            hook.tool_name,
            self.dialect.call_subject(hook),
            request.caller.agent_id,
            self.dialect.name,
            request.caller.id,
            find_moment=functools.partial(self.build_timed_call_of_hook, request),
        )
        if hook.embedded_shell_lines is not None:
            ruling = await self.judge_call_with_shell_lines(ruling, request, hook.embedded_shell_lines)
        if self._rulings.has_call_blocking_budgets:
            ruling = stricter_ruling(ruling, await self.judge_hook_call_by_budgets(request))
        if ruling.decision == ALLOW and is_question_tool(hook.tool_name):
            ruling = NO_OPINION  # no rule knows the answer
        is_unruled_prompt = ruling.decision == OBSERVE and hook.name in self.dialect.prompts
        if request.has_no_prompt and (ruling.decision == ASK or is_unruled_prompt):
            # The agent has nobody else to ask, and takes no answer for no.
            ruling = replace(ruling, decision=ASK, wait_seconds=None, deny_at_deadline=True)
        request.is_decided = ruling.decision != OBSERVE or hook.name in self.dialect.prompts
        call.ruling = stricter_ruling(
            ruling,
            self._rulings.cached_brake_ruling_or_default(
                request.possible_agent_names, request.where.hostname
            ),
        )
        return ruling

    async def build_timed_call_of_hook(self, request: HookRequest) -> TimedCall:
        """Return the call as its session's events name it. Raises ServiceBusy."""
        hook, call = request.hook, await self.get_or_build_tool_call(request)
        # A hook that names no call, at which the agent asks its person, comes after the one that reported the call.
        is_recorded = call.call_id is None and hook.name in self.dialect.prompts
        return TimedCall(
            call.session_id,
            hook.tool_name,
            wrap_non_object_value(hook.tool_input),
            instants.instant_from_microseconds(call.since_us),
            call.call_id,
            is_recorded=is_recorded,
            folder=call.folder,
        )

    async def build_timed_call_of_shell_line(
        self, request: HookRequest, tool: str, tool_input: dict[str, str]
    ) -> TimedCall:
        """Return a shell line that runs as part of the call, as a call of its own. Raises ServiceBusy."""
        moment = await self.build_timed_call_of_hook(request)
        return replace(moment, tool=tool, tool_input=tool_input, call_id=None, is_recorded=False)

    async def judge_unparseable_hook_call(self, request: HookRequest, reason: str) -> Ruling:
        """Return the denial of a call that could not be read (`reason`), where policy may ask about it or deny it."""
        hook = request.hook
        await self._rulings.refresh_policy_rules()
        tool = hook.tool_name if hook.has_tool_name else None
        partial_call = PartialCall(
            tool, None, request.caller.agent_id, agent_known=True, program=self.dialect.name
        )
        worst = self._rulings.find_strictest_possible_ruling(partial_call)
        if hook.embedded_shell_lines is not None:
            any_line = replace(partial_call, tool=hook.embedded_shell_lines.tool)
            worst = stricter_ruling(worst, self._rulings.find_strictest_possible_ruling(any_line))
        if request.has_no_prompt:  # the agent takes no answer for no
            worst = stricter_ruling(worst, Ruling(ASK, deny_at_deadline=True))
        return self.dialect.derive_ruling_for_unreadable_call(hook.name, worst, reason)

    async def judge_call_with_shell_lines(
        self, ruling: Ruling, request: HookRequest, shell: ShellLines
    ) -> Ruling:
        """Return the stricter of what policy says of a call and of the shell lines that run as part of it.

        Nothing is allowed for its lines' sake. Where there may be others than are known, a person is asked wherever a
        rule might ask about them or deny them.
        """
        agent_id, program = request.caller.agent_id, self.dialect.name
        of_lines = NO_OPINION
        texts = self.dialect.shell_line_subjects(request.hook, shell)
        for line, tool_input, text in zip(shell.lines, shell.tool_inputs, texts, strict=True):
            line_ruling = await self._rulings.judge_tool_call(
                shell.tool,
                text,
                agent_id,
                program,
                request.caller.id,
                find_moment=functools.partial(
                    self.build_timed_call_of_shell_line, request, shell.tool, tool_input
                ),
            )
            if line_ruling.decision in {ASK, DENY}:
                line_shown = repr(line[:LONGEST_LINE_SHOWN])
                line_reason = f"It runs the shell line {line_shown} while it is loaded. {line_ruling.reason}"
                of_lines = stricter_ruling(of_lines, replace(line_ruling, reason=line_reason))
        if shell.problem:
            rules = await self._rulings.get_rules_if_current()
            any_line = PartialCall(shell.tool, None, agent_id, agent_known=True, program=program)
            counting = await self._rulings.list_rules_about_unknown_call(
                rules or (), functools.partial(self.build_timed_call_of_shell_line, request, shell.tool, {})
            )
            line_ruling = UNREAD if rules is None else strictest_ruling_for_partial_call(counting, any_line)
            if line_ruling.decision in {ASK, DENY}:
                line_reason = f"{shell.problem} {MAY_HOLD_LINES} {line_ruling.reason}"
                is_certain = line_ruling.deny_at_deadline or line_ruling.decision == DENY
                line_ruling = replace(
                    line_ruling, decision=ASK, reason=line_reason, deny_at_deadline=is_certain
                )
                of_lines = stricter_ruling(of_lines, line_ruling)
        ruling = NO_OPINION if shell.is_persons else ruling
        return stricter_ruling(ruling, of_lines) if of_lines.decision in {ASK, DENY} else ruling

    async def judge_hook_call_by_budgets(self, request: HookRequest) -> Ruling:
        """Return what the budgets say of the call; its session is there before its first call is decided."""
        try:
            session = await self.get_or_create_session_of_hook(request)
        except SignalboxError:
            return BUDGETS_UNREAD
        return await self._rulings.judge_call_budgets(
            request.hook.tool_name,
            request.possible_agent_names,
            session.session_id,
            agent_id=request.caller.agent_id,
            key_id=request.caller.id,
        )

    # --- record -------------------------------------------------------------------------------------------

    async def record_hook_and_find_brakes(
        self, request: HookRequest, ruling: Ruling
    ) -> tuple[ActiveBrake, ...] | None:
        """Have the hook written, with what policy says of it; return the brakes that are on, None if not known.

        What is decided goes on without a database that is busy: it is in the log, and will be in the session.
        """
        is_readable_call = request.is_call and request.hook.unread is None
        refusals: tuple[type[SignalboxError], ...] = ()
        if request.is_decided:
            refusals = (SignalboxError,)
        elif is_readable_call:  # a brake holds the calls, too, of a key that has reached its quota
            refusals = (QuotaReached,)
        with contextlib.suppress(*refusals):
            read_back = brakes.load_active_brakes if is_readable_call else None
            active_brakes: tuple[ActiveBrake, ...] | None = await self._recorder.record_hook_events(
                request.hook, request.where, request.size, ruling, read_back=read_back
            )
            return active_brakes
        return None

    async def record_hook_delivered_too_late(self, request: HookRequest, denied: str | None) -> None:
        """Write a hook whose agent has gone on, with why its call was not let run (`denied`)."""
        await self._recorder.record_hook_events(request.hook, request.where, request.size)
        if denied is not None and request.is_call:
            await self.record_denial_as_call_result(request, denied)
        else:
            await self.record_call_end_without_hook(request)

    async def record_denial_as_call_result(self, request: HookRequest, reason: str) -> None:
        """Write the result of a call that does not run, as no hook will report it."""
        hook, call = request.hook, await self.get_or_build_tool_call(request)
        if call.call_id is not None:
            denied = self.dialect.build_denied_call_result_event(hook, call.session_id, call.call_id, reason)
            await self._recorder.write_hook_events(hook, [denied], 0, request.caller)

    async def record_call_end_without_hook(self, request: HookRequest) -> None:
        """Write the end of a call that runs and whose result no hook will report."""
        if request.hook.name not in self.dialect.without_result:
            return
        with contextlib.suppress(SignalboxError):  # what was decided goes out all the same
            session = await self.get_or_create_session_of_hook(request)
            ended = self.dialect.build_unreported_call_end_event(request.hook, session.session_id)
            if ended is not None:
                await self._recorder.write_hook_events(request.hook, [ended], 0, request.caller)

    async def get_or_create_session_of_hook(self, request: HookRequest) -> RecordedHookSession:
        """Return the hook's session. Raises ServiceBusy where the database does not answer soon."""
        return await self._recorder.find_or_create_hook_session(
            request.hook, request.where, within=DECIDE_WITHIN
        )

    async def get_or_build_tool_call(self, request: HookRequest) -> ToolCallRequest:
        """Return the call that the hook asks about. Raises as `get_or_create_session_of_hook` does."""
        if request.call is None:
            session = await self.get_or_create_session_of_hook(request)
            request.call = self.dialect.build_tool_call_request(
                request.hook, session.session_id, request.caller.agent_id, request.where.hostname
            )
        return request.call

    # --- respond ------------------------------------------------------------------------------------------

    async def decide_and_build_hook_reply(
        self,
        call: GuardedCall,
        request: HookRequest,
        ruling: Ruling,
        active_brakes: tuple[ActiveBrake, ...] | None,
    ) -> AgentReply | None:
        """Return the answer, once brakes are off and a person has decided where one must; None for no opinion."""
        reply: AgentReply | None = None
        if request.hook.unread is not None:
            reply = (
                self.dialect.build_undecided_call_reply(request.hook.name, ruling, "")
                if request.is_call
                else None
            )
        elif request.is_call:
            reply = await self.await_brake_release_or_build_denial(call, request, ruling, active_brakes)
            if reply is None and request.is_decided:
                reply = await self.decide_call(request, ruling)
                if ruling.decision != DENY and (reply is None or reply.denial is None):
                    # It waited for a person, or for the database; meanwhile a brake may have been put on.
                    reply = await self.await_brake_release_or_build_denial(call, request, ruling) or reply
        if reply is not None and reply.denial is not None:
            with contextlib.suppress(SignalboxError):  # what was decided goes out all the same
                await self.record_denial_as_call_result(request, reply.denial)
        else:
            await self.record_call_end_without_hook(request)
        return await self.consume_session_notes_into_reply(call, request, reply)

    async def await_brake_release_or_build_denial(
        self,
        call: GuardedCall,
        request: HookRequest,
        ruling: Ruling,
        active_brakes: tuple[ActiveBrake, ...] | None = None,
    ) -> AgentReply | None:
        """Hold the call while a brake is on; return the denial of one that is not released in time, else None.

        `active_brakes` are those that were on just now; None where the gate must ask.
        """
        brake: ActiveBrake | None = None
        if active_brakes != ():
            wait_for_release = functools.partial(
                self._gate.await_release_or_get_brake,
                request.possible_agent_names,
                asker=request.caller.caller_actor.name,
                still_allowed=request.admission.require_still_allowed,
            )
            host = request.where.hostname
            brake = await wait_for_release(host, wait=0)
            if brake is not None and host is None:
                with contextlib.suppress(SignalboxError):  # where its session is known to run
                    session = await self.get_or_create_session_of_hook(request)
                    host = await self._gate.find_session_host(session.session_id)
                brake = await wait_for_release(host, wait=0) if host is not None else brake
            if brake is not None:
                call.ruling = Ruling(ASK, brake.agent_message, f"brake {brake.id}", deny_at_deadline=True)
                brake = await wait_for_release(host, wait=request.remaining_wait - BEFORE_DEADLINE)
        call.ruling = ruling if brake is None else build_brake_ruling(brake)
        return None if brake is None else self.dialect.build_ruling_reply(request.hook, call.ruling)

    async def decide_call(self, request: HookRequest, ruling: Ruling) -> AgentReply | None:
        """Return the answer of policy or of a person, None for no opinion. Raises Gone for a caller that left."""
        session = await self.get_or_create_session_of_hook(request)
        if session.driven and ruling.decision == OBSERVE:
            return None  # its runner is asked, and puts the question before people in the agent's own words
        call = await self.get_or_build_tool_call(request)
        if ruling.decision in {ALLOW, DENY}:
            record_ruling = functools.partial(
                tool_calls.audit_policy_ruling,
                call,
                ruling,
                actor=request.caller.caller_actor,
                now=timezone.now(),
            )
            await self._recorder.run_hook_work_in_writer(record_ruling, within=DECIDE_WITHIN)
            return self.dialect.build_ruling_reply(request.hook, ruling)
        try:
            return await self.await_verdict_and_build_reply(request, call, ruling)
        except SignalboxError as problem:
            if not (
                isinstance(problem, ServiceRestarting) and can_hook_be_redelivered(request.sent_as, ruling)
            ):
                # The guard answers; where that is a denial, the call has its result.
                reason = describe_unanswered_call_for_person(problem, ruling)
                reply = self.dialect.build_undecided_call_reply(request.hook.name, ruling, reason)
                if reply is not None and reply.denial is not None:
                    with contextlib.suppress(SignalboxError):
                        await self.record_denial_as_call_result(request, reply.denial)
            raise

    async def await_verdict_and_build_reply(
        self, request: HookRequest, call: ToolCallRequest, ruling: Ruling
    ) -> AgentReply | None:
        """Put the call before people, wait for them, and return their answer in the agent's JSON."""
        hook = request.hook
        wait = min(request.wait, ruling.wait_seconds or request.wait)
        timeout_reply = self.dialect.build_decision_timeout_reply(hook, wait, deny=ruling.deny_at_deadline)
        request.call, settled = await self._approval_waiter.request_and_await_hook_verdict(
            call,
            ruling,
            actor=request.caller.caller_actor,
            wait=wait,
            outlasts=timeout_reply is not None and timeout_reply.denial is not None,
            still_allowed=request.admission.require_still_allowed,
            receive=request.receive,
            sent_as=request.sent_as if ruling.deny_at_deadline else None,
        )
        if settled["status"] == "expired":
            return timeout_reply
        if settled["status"] == "elsewhere":
            return None
        if settled["status"] == tool_calls.DEFERRED:  # it can still be approved
            if request.has_no_prompt:
                return AgentReply({"signalbox": {"held": settled["request_id"]}})
            later = (
                self.dialect.build_postponement_reply(hook, request.resumes_as)
                if request.resumes_as
                else None
            )
            return later or self.dialect.build_retryable_denial_reply(hook, settled)
        unmasked = tool_calls.restore_masked_answer_secrets(settled, request.call)
        return self.dialect.build_person_verdict_reply(hook, request.call, unmasked or CANNOT_RUN)

    async def consume_session_notes_into_reply(
        self, call: GuardedCall, request: HookRequest, reply: AgentReply | None
    ) -> AgentReply | None:
        """Return the reply with the notes that people wrote to the session's agent."""
        # A tool that asks reads no note, and a run that ends here to be resumed later would lose it.
        if request.has_no_prompt or (request.resumes_as is not None and request.is_call):
            return reply
        if (
            not self.dialect.can_reply_carry_model_note(request.hook)
            or not await self._notes.has_notes_for_any_session()
        ):
            return reply
        if reply is None and call.ruling is not None and call.ruling.decision in {ASK, DENY}:
            return None  # the guard has the last word
        try:
            session = await self.get_or_create_session_of_hook(request)
            through = f"{AGENT_TITLES[self.dialect.name]}'s hook {request.hook.name}"
            text = await self._notes.consume_session_notes(
                session.session_id, through, given_to=request.sent_as
            )
            return self.dialect.copy_reply_with_model_note(request.hook, reply, text) if text else reply
        except Exception as problem:  # what was decided goes out all the same
            log.warning("A hook %s is answered without its note: %s", request.hook.name, str(problem).strip())
            return reply


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
    # The session of ours for which a runner started the agent, where its hook passes that on.
    driven = headers.get(b"x-signalbox-session", b"").decode("latin-1").strip()
    return SessionLocation(
        project_dir=hook.working_folder,
        hostname=host[:255] or None,
        agent_name=caller.agent_id or agent,
        profile=agent,
        by=caller,
        driven=driven if SESSION_ID.fullmatch(driven) else None,
        parent=hook.parent_session_id,
    )


def parse_hook_wait_seconds(scope: Scope) -> float:
    """Return for how many seconds the hook waits for a person, as its address says."""
    try:
        return get_seconds_query_parameter(scope, "wait", default=WAIT, most=LONGEST_WAIT)
    except UnprocessableRequest:  # the endpoint refuses it
        return WAIT
