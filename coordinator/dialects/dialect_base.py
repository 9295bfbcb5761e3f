"""The base class of every agent's dialect. Pure.

The pipeline of hooks in `edge` uses it. `.docs/develop/howto.md` lists what else an agent needs. Decisions and their
messages are the same for every agent and are defined here. An agent's module defines their form in the agent's own
JSON, and which of them the agent supports.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from coordinator.client.real_paths import FIELD as LINKS_FIELD
from coordinator.client.tool_names import PREFIX
from coordinator.client.transcript_lines import FIELD
from coordinator.dialects.attached_transcript_lines import (
    build_speech_and_usage_events,
    find_attached_usage_limit_line,
)
from coordinator.dialects.hooks import (
    UNREAD,
    AgentHook,
    HookEventBuilder,
    Meaning,
    ShellLines,
    call_result_origin,
    choose_plausible_hook_time_text,
    infer_unreadable_hook_name,
    make_event_origin,
    parse_agent_hook,
    wrap_non_object_value,
)
from coordinator.importing.lines import ImportedLine, LineReader
from coordinator.lib import instants
from coordinator.policy.requests import questions
from coordinator.policy.requests.tool_calls import STOPS_TURN, Settled, ToolCallRequest
from coordinator.policy.rules.call_text import (
    build_call_text_from_input,
    call_text_with_symlinks,
    copy_call_text_with_folder,
)
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, NO_OPINION, Ruling
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MessagePiece

Answer = dict[str, Any]
LOST = "hooks_lost"
NOT_AS_EDITED = (
    "It was approved in Signalbox with a different input, which cannot run here. Ask again with that input."
)
COULD_NOT_READ = "Signalbox could not read this call:"
UNREAD_ADVICE = (
    "A rule may ask about such calls or deny them, so it did not run. Tell your user. Do not work around it."
)
ANSWERED_BY = "{} answered this question in Signalbox, so it is not asked again. Go on with the answer:\n{}"
NOT_FITTING = "The answer that a person gave in Signalbox does not fit this question. Ask again."
MOST_OF_EDIT = 4_000  # characters; Claude Code cuts at 10,000
TURN_ENDS = "The turn ends here: stop, and tell your user why."
AT_A_LOSS = "Signalbox met an error and cannot tell whether its rules allow this call."


@dataclass(frozen=True, slots=True)
class AgentReply:
    """What an agent is answered.

    `answer` is in the agent's own JSON; None is an empty body, after which the agent goes on. `denial` is why the
    call does not run, None where it may.
    """

    answer: Answer | None
    denial: str | None = None


def describe_input_edit(who: str, before: Mapping[str, Any], after: Any) -> str:
    """Return the text that informs the model that a person changed its call."""
    changed = {
        name: value for name, value in after.items() if before.get(name, value) != value or name not in before
    }
    dropped = [name for name in before if name not in after]
    parts = [f"{name} to {json.dumps(value, ensure_ascii=False)}" for name, value in changed.items()]
    parts += [f"{name} to nothing" for name in dropped]
    edit_notice = f"A person ({who}) changed this call in Signalbox before it ran: {', '.join(parts)}"
    end = "…" if len(edit_notice) > MOST_OF_EDIT else "."
    return f"{edit_notice[:MOST_OF_EDIT]}{end} The call as you made it did not run."


class Dialect(ABC):
    """How the hooks of one agent are read and answered.

    An agent's module has one subclass and registers one instance of it as `DIALECT` (`dialects.dialect_registry`).
    Class attributes say what its hooks are called and can do. Methods have defaults for what most agents do.
    """

    # --- what its hooks are, by name ----------------------------------------------------------------------

    name: ClassVar[str]  # as in `agent_programs.AGENT_TITLES` and in the address `/hooks/NAME`
    calls: ClassVar[frozenset[str]]  # report a call before it runs; their answers decide it
    worst_call: ClassVar[str] = "PreToolUse"  # of `calls`: what a body counts as that cannot be read
    # Of `calls`, those at which the agent asks its own person at the same time.
    prompts: ClassVar[frozenset[str]] = frozenset()
    edits: ClassVar[frozenset[str]] = frozenset()  # of `calls`: an answer may change the call's input
    # Of `calls`, those whose result no hook reports: the answer ends them.
    without_result: ClassVar[frozenset[str]] = frozenset()
    beginnings: ClassVar[frozenset[str]]  # a person's: an ended session runs again
    turn_ends: ClassVar[frozenset[str]]  # after these no message is unfinished any more
    notes: ClassVar[frozenset[str]] = frozenset()  # an answer may carry a text for the model
    stops: ClassVar[frozenset[str]] = frozenset()  # of `calls`: an answer may end the agent's turn
    # Further hooks whose answer may, with an edited input, inform the model of the edit.
    edit_notes: ClassVar[frozenset[str]] = frozenset()

    # --- how they are read --------------------------------------------------------------------------------

    hook_type: ClassVar[type[AgentHook]] = AgentHook
    name_fields: ClassVar[tuple[str, ...]] = ("hook_event_name",)  # a hook's name is in the first of these
    session_fields: ClassVar[tuple[str, ...]] = ("session_id",)  # … and its session here
    time_field: ClassVar[str | None] = None  # when it happened, where the agent says that
    meanings: ClassVar[Mapping[str, Meaning]]  # what a hook means, by its name
    line_reader: Callable[[str], LineReader] | None = (
        None  # of transcript lines; `dialects.dialect_registry` sets it
    )
    lines_have_tokens: ClassVar[bool] = False  # whether those lines alone report what requests took
    lines_have_limits: ClassVar[bool] = (
        False  # whether one of them says how full the limits of a subscription are
    )
    sends_pieces: ClassVar[bool] = False  # whether it sends messages piece by piece

    # --- what its calls are about -------------------------------------------------------------------------

    # By tool, the field of its input that rules look at. These tools are offered where a rule is written.
    subjects: ClassVar[Mapping[str, str]]
    mcp_name: ClassVar[str] = "mcp__{server}__{tool}"  # how rules know a call of an MCP server's tool
    detail_fields: ClassVar[
        tuple[str, ...]
    ] = ()  # fields of a hook that its card shows, in addition to the folder

    # --- how it is answered -------------------------------------------------------------------------------

    can_ask: ClassVar[bool] = True  # whether it can be made to ask its own person; else ask is a denial
    cannot_ask: ClassVar[str] = ""  # what its model reads in place of a question

    @property
    def tools(self) -> tuple[str, ...]:
        """Its own tools, to offer where a rule is written."""
        return tuple(self.subjects)

    @property
    def has_mcp_server_names(self) -> bool:
        """Whether a call names the MCP server of its tool: grants apply to no other."""
        return self.mcp_name.startswith(PREFIX)

    # --- reading ------------------------------------------------------------------------------------------

    def read_hook(self, body: bytes, at: str) -> AgentHook:
        """Return the hook that a body holds, received `at`.

        Raises UnprocessableRequest where it is no JSON object or names no session.
        """
        hook = parse_agent_hook(
            body, at, self.hook_type, named_in=self.name_fields, session_in=self.session_fields
        )
        if self.time_field is None:
            return hook
        return replace(hook, at=choose_plausible_hook_time_text(hook.fields.get(self.time_field), at))

    def guess_call_hook_name(self, body: bytes | None) -> str | None:
        """Return which of `calls` a body may be that cannot be read, at worst; None where it is no call.

        A body that did not arrive is None.
        """
        return infer_unreadable_hook_name(body, self.calls, self.worst_call, named_in=self.name_fields)

    def is_redundant_hook(self, _hook: AgentHook) -> bool:
        """Say whether the hook reports nothing that a reader wants."""
        return False

    def build_hook_and_transcript_events(self, hook: AgentHook, session_id: str) -> list[DedupedEvent]:
        """Return the events of a hook in a session of ours, after those of the transcript lines that it brings."""
        if self.line_reader is None or FIELD not in hook.fields:
            return self.build_hook_events(hook, session_id)
        reader = self.line_reader(hook.session)
        line_events = build_speech_and_usage_events(hook, reader, with_tokens=self.lines_have_tokens)
        for event in line_events:
            event.session_id, event.source = session_id, self.name
        own_fields = {name: value for name, value in hook.fields.items() if name != FIELD}
        return [*line_events, *self.build_hook_events(replace(hook, fields=own_fields), session_id)]

    def find_hook_usage_limit_line(self, hook: AgentHook, now: datetime) -> ImportedLine | None:
        """Return the attached transcript line that says how full the limits of a subscription are, if there is one."""
        if self.line_reader is None or not self.lines_have_limits or FIELD not in hook.fields:
            return None
        return find_attached_usage_limit_line(hook.fields[FIELD], self.line_reader(hook.session), now)

    def build_hook_events(self, hook: AgentHook, session_id: str) -> list[DedupedEvent]:
        """Return what the hook itself means; a milestone for one that means nothing else."""
        if self.is_redundant_hook(hook):
            return []
        build = HookEventBuilder(hook, session_id, self.name)
        meaning = self.meanings.get(hook.name)
        return (meaning(build) if meaning else []) or [build.build_hook_milestone()]

    def extract_message_piece(self, _hook: AgentHook) -> MessagePiece | None:
        """Return the piece of a message that the hook holds, None for any other hook."""
        return None

    def build_complete_message_event(
        self, hook: AgentHook, session_id: str, message_id: str, text: str
    ) -> DedupedEvent:
        """Return the event of a message whose pieces are all there. Only for an agent that `sends_pieces`."""
        raise NotImplementedError

    def copy_hook_marking_separate_lines(self, hook: AgentHook) -> AgentHook:
        """Return the hook as one whose shell lines each come with a hook of their own, as its address says."""
        return hook

    # --- calls --------------------------------------------------------------------------------------------

    def is_call_hook(self, hook: AgentHook) -> bool:
        """Say whether the hook reports a call before it runs."""
        return hook.name in self.calls and (hook.has_tool_name or hook.unread is not None)

    def build_call_subject_text(self, tool: str, tool_input: Any) -> str:
        """Return what a call is about in one text that rules look at: one field of its input, else all as JSON."""
        return build_call_text_from_input(tool_input, self.subjects.get(tool))

    def call_subject(self, hook: AgentHook) -> str:
        """Return what the hook's call is about, in one text: what rules look at."""
        text = copy_call_text_with_folder(
            self.build_call_subject_text(hook.tool_name, hook.tool_input), hook.working_folder
        )
        return call_text_with_symlinks(text, hook.fields.get(LINKS_FIELD))

    def shell_line_subjects(self, hook: AgentHook, shell: ShellLines) -> list[str]:
        """Return what each shell line that runs as part of a call is about."""
        folder = hook.working_folder
        return [
            copy_call_text_with_folder(self.build_call_subject_text(shell.tool, line), folder)
            for line in shell.tool_inputs
        ]

    def copy_call_with_details(self, hook: AgentHook, call: ToolCallRequest) -> ToolCallRequest:
        """Return the call with what its card shows in addition to its input."""
        details = {"cwd": hook.working_folder} | {name: hook.text_field(name) for name in self.detail_fields}
        # A card shows a command in full by itself.
        is_command = self.subjects.get(hook.tool_name, "command") == "command"
        return replace(call, target=None if is_command else call.about, details=details)

    def describe_offered_rule(self, rule: Mapping[str, Any]) -> str:
        """Return the description of a permanent rule that the agent offers."""
        return json.dumps(rule)

    def build_tool_call_request(
        self, hook: AgentHook, session_id: str, agent_id: str | None, host: str | None = None
    ) -> ToolCallRequest:
        """Return the call that the hook is about; `host` is the machine that it came from."""
        received = instants.parse_instant_or_none(hook.at)
        call = ToolCallRequest(
            hook_name=hook.name,
            session_id=session_id,
            agent_id=agent_id,
            since_us=instants.instant_to_microseconds(received) if received else 0,
            tool=hook.tool_name,
            tool_input=wrap_non_object_value(hook.tool_input),
            about=self.call_subject(hook),
            program=self.name,
            is_prompted=hook.name in self.prompts,
            is_editable=hook.name in self.edits and hook.embedded_shell_lines is None,
            can_stop_turn=hook.name in self.stops,
            subagent=hook.subagent_label,
            call_id=hook.call_id,
            folder=hook.working_folder,
            host=host,
        )
        return self.copy_call_with_details(hook, call)

    # --- answers ------------------------------------------------------------------------------------------

    @abstractmethod
    def build_decision_reply(
        self, name: str, decision: str, reason: str, added: Mapping[str, Any]
    ) -> AgentReply | None:
        """Return a decision (allow, deny or ask) about a call as the answer to the hook `name`.

        `added` is what a person added: `updated_input`, `suggestions`. None where the agent's own prompt, which
        is shown already, asks. Where the agent cannot be made to ask (`can_ask`), ask is a denial.
        """

    def format_denial_reason(self, decision: str, reason: str) -> str:
        """Return the reason of a denial, which also says so where the agent should have asked, and cannot."""
        return f"{reason} {self.cannot_ask}" if decision == ASK else reason

    def build_postponement_reply(self, _hook: AgentHook, _started: str) -> AgentReply | None:
        """Return the answer after which the agent ends now, and asks again when it is resumed; None if it cannot.

        `_started` is how it was started.
        """
        return None

    def add_model_note_to_answer(self, hook: AgentHook, answer: Answer, text: str) -> Answer:
        """Return the answer with a text for the model, as Claude Code and most others after it read it."""
        hook_specific_output = answer.get("hookSpecificOutput") or {"hookEventName": hook.name}
        return answer | {"hookSpecificOutput": hook_specific_output | {"additionalContext": text}}

    def supports_model_notes(self, hook: AgentHook) -> bool:
        """Say whether what posts this hook knows what to do with a note."""
        return not self.is_redundant_hook(hook)

    def build_ruling_reply(self, hook: AgentHook, ruling: Ruling) -> AgentReply | None:
        """Return policy's answer, in the hook's own JSON."""
        reason = f"Signalbox ({ruling.by}): {ruling.reason}"
        if not (ruling.decision == DENY and ruling.stops_turn):
            return self.build_decision_reply(hook.name, ruling.decision, reason, {})
        return self.build_turn_stopping_denial(hook, reason)

    def build_turn_stopping_denial(self, hook: AgentHook, reason: str) -> AgentReply | None:
        """Return a denial that also ends the agent's turn; an agent that cannot be stopped is asked to stop."""
        reason = f"{reason} {TURN_ENDS}"
        reply = self.build_decision_reply(hook.name, DENY, reason, {})
        if reply is None or hook.name not in self.stops:
            return reply
        return replace(reply, answer=(reply.answer or {}) | {"continue": False, "stopReason": reason})

    def build_person_verdict_reply(
        self, hook: AgentHook, call: ToolCallRequest, settled: Settled
    ) -> AgentReply | None:
        """Return a person's answer, in the hook's own JSON, with their edits and choices."""
        added = settled.get("answer") or {}
        if settled["allowed"] and questions.ANSWER_FIELDS & added.keys():
            return self.build_question_answer_reply(hook, call, settled)
        if not call.is_editable and added.get("updated_input", call.tool_input) != call.tool_input:
            return self.build_decision_reply(hook.name, DENY, NOT_AS_EDITED, {})
        approved_by, reason = settled.get("approved_by") or "somebody", settled.get("reason")
        if not settled["allowed"] and added.get(STOPS_TURN):
            return self.build_turn_stopping_denial(
                hook, f"Denied by {approved_by} in Signalbox, turn ended{f': {reason}' if reason else '.'}"
            )
        word, decision = ("Approved", ALLOW) if settled["allowed"] else ("Denied", DENY)
        verdict_text = f"{word} by {approved_by} in Signalbox{f': {reason}' if reason else '.'}"
        reply = self.build_decision_reply(hook.name, decision, verdict_text, added)
        edited = added.get("updated_input", call.tool_input)
        if decision == ALLOW and edited != call.tool_input and self.can_explain_edit(hook):
            return self.copy_reply_with_model_note(
                hook, reply, describe_input_edit(approved_by, call.tool_input or {}, edited)
            )
        return reply

    def build_question_answer_reply(
        self, hook: AgentHook, call: ToolCallRequest, settled: Settled
    ) -> AgentReply | None:
        """Return a person's answer to a question of the agent, or their yes to its plan.

        An agent whose tool takes no answer from a hook reads it as the reason why the tool did not ask.
        """
        approved_by, added = settled.get("approved_by") or "somebody", settled["answer"]
        question = questions.parse_call_question_or_none(call.tool, call.tool_input)
        if not isinstance(question, questions.AgentQuestions):
            return self.build_decision_reply(hook.name, ALLOW, f"Approved by {approved_by} in Signalbox.", {})
        described = questions.describe_answers_or_none(question, added.get(questions.ANSWERED))
        answer_text = ANSWERED_BY.format(approved_by, described) if described else NOT_FITTING
        return self.build_decision_reply(hook.name, DENY, answer_text, {})

    def can_explain_edit(self, hook: AgentHook) -> bool:
        """Return whether the answer to this hook may inform the model that a person changed its call."""
        return hook.name in self.notes | self.edit_notes and self.supports_model_notes(hook)

    def build_decision_timeout_reply(
        self, hook: AgentHook, seconds: float, *, deny: bool
    ) -> AgentReply | None:
        """Return the answer when nobody decided in time; None leaves the call to the agent's own prompt.

        A call that policy wanted asked has no prompt yet where the agent did not mean to ask. The answer makes it
        show one, or deny where it has none, else a call that the agent's own rules allow would run without any
        person's decision.
        """
        timeout_text = f"Nobody answered in Signalbox within {seconds:.0f} s."
        return self.build_decision_reply(hook.name, DENY if deny else ASK, timeout_text, {})

    def can_reply_carry_model_note(self, hook: AgentHook) -> bool:
        """Say whether the answer to this hook may carry a note. Sub-agents get none: it is not for them."""
        return hook.name in self.notes and hook.subagent_label is None and self.supports_model_notes(hook)

    def copy_reply_with_model_note(self, hook: AgentHook, reply: AgentReply | None, text: str) -> AgentReply:
        """Return the reply with a note for the model; what it decides stays."""
        answer = self.add_model_note_to_answer(
            hook, (reply.answer if reply is not None else None) or {}, text
        )
        return AgentReply(answer, reply.denial if reply is not None else None)

    def build_retryable_denial_reply(self, hook: AgentHook, settled: Settled) -> AgentReply | None:
        """Return the denial of a call that can still be approved, and made again: `why`, `request_id`, `link`, `until`.

        The model reads it, so it says what to do, and gives no reason to look for a way around.
        """
        until = settled["until"]
        denial_text = (
            f"{settled['why']} So this call did not run. A person can still approve it"
            f"{f', until {until:%Y-%m-%d %H:%M} UTC' if until else ''}: "
            f"request {settled['request_id']}, {settled['link']}"
            " Ask for that, and then make exactly the same call again: it runs once. Do not try another way."
        )
        return self.build_decision_reply(hook.name, DENY, denial_text, {})

    def build_undecided_call_reply(self, name: str, ruling: Ruling, reason: str) -> AgentReply | None:
        """Return the answer to the hook `name` where policy denies, or asks and no person could decide (`reason`).

        None where the agent's own prompt is shown already, and where policy neither denies nor asks.
        """
        if ruling.decision not in {ASK, DENY}:
            return None
        rule = f"Signalbox ({ruling.by}): {ruling.reason}" if ruling.by else ruling.reason
        denial_text = " ".join(filter(None, [rule, reason]))
        denies = ruling.decision == DENY or ruling.deny_at_deadline
        return self.build_decision_reply(name, DENY if denies else ASK, denial_text, {})

    def derive_ruling_for_unreadable_call(
        self, name: str, ruling: Ruling, reason: str, *, is_broken: bool = True
    ) -> Ruling:
        """Return the ruling on a call that could not be read (`reason`); `ruling` is the strictest possible one.

        A body that `is_broken` will not be better next time: its call is denied where policy asks or denies, unless
        the agent's own prompt is shown already and may decide. Otherwise the ruling is kept, with this reason in
        place of its own, which may be about other calls.
        """
        is_decided_by_agent = name in self.prompts and ruling.decision == ASK and not ruling.deny_at_deadline
        if ruling.decision not in {ASK, DENY} or (is_broken and is_decided_by_agent):
            return NO_OPINION
        decision = DENY if is_broken else ruling.decision
        ruling_text = f"{COULD_NOT_READ} {reason} {UNREAD_ADVICE if decision == DENY else ''}".strip()
        return Ruling(decision, ruling_text, deny_at_deadline=ruling.deny_at_deadline)

    def build_unknown_call_denial(self) -> AgentReply | None:
        """Return the denial of a call about which nothing is known."""
        return self.build_decision_reply(self.guess_call_hook_name(None) or "", DENY, AT_A_LOSS, {})

    # --- events of our own --------------------------------------------------------------------------------

    def build_lost_hooks_event(
        self, hook: AgentHook, session_id: str, lost: Mapping[str, int]
    ) -> DedupedEvent:
        """Return the milestone that names the hooks before this one that could not be written."""
        return HookEventBuilder(hook, session_id, self.name).build_hook_event(
            LOST,
            uses=hook.fields,
            tool_input={"hooks": dict(lost)},
            origin=make_event_origin(hook.session, LOST, hook.at),
        )

    def build_unreadable_hook_events(self, hook: AgentHook, session_id: str) -> list[DedupedEvent]:
        """Return what a hook that could not be read makes: that it came, and the end of a turn where it is one."""
        build = HookEventBuilder(hook, session_id, self.name)
        unread_fields = {
            "hook": hook.name,
            "problem": hook.unread,
            "body": hook.fields.get("body", hook.fields),
        }
        unread = build.build_hook_event(UNREAD, uses=hook.fields, tool_input=unread_fields)
        if hook.name in self.turn_ends or (hook.name in self.calls and hook.has_tool_name):
            return [unread, *self.build_hook_and_transcript_events(hook, session_id)]
        return [unread]

    def build_denied_call_result_event(
        self, hook: AgentHook, session_id: str, call_id: str, reason: str
    ) -> DedupedEvent:
        """Return the result of a call that our answer denies; no hook will report one."""
        return self.build_synthetic_call_result_event(hook, session_id, call_id, reason)

    def build_unreported_call_end_event(self, hook: AgentHook, session_id: str) -> DedupedEvent | None:
        """Return the end of a call that runs and whose result no hook reports; None for any other hook."""
        if hook.name not in self.without_result or hook.call_id is None or not self.is_call_hook(hook):
            return None
        return self.build_synthetic_call_result_event(hook, session_id, hook.call_id, None)

    def build_synthetic_call_result_event(
        self, hook: AgentHook, session_id: str, call_id: str, error: str | None
    ) -> DedupedEvent:
        return HookEventBuilder(hook, session_id, self.name).build_hook_event(
            "post_tool",
            uses=hook.fields,
            tool_name=hook.tool_name,
            tool_input=wrap_non_object_value(hook.tool_input),
            tool_use_id=call_id,
            error=error,
            origin=call_result_origin(hook.session, call_id),
        )
