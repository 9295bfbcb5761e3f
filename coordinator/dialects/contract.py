"""What every agent's module provides: a `Dialect`. Pure.

An agent's `DIALECT` is what the door, the guard and the recorder in `edge` ask; `sessions.agent_programs` lists what
else a new agent needs. What is decided, and in which words, is the same for every agent and stands here; an
agent's module says how that looks in its own JSON, and what of it the agent understands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.client.tool_names import PREFIX
from coordinator.dialects.hooks import (
    UNREAD,
    AgentHook,
    HookEventBuilder,
    ShellLines,
    call_result_origin,
    make_event_origin,
    wrap_as_object,
)
from coordinator.lib import instants
from coordinator.policy.requests.tool_calls import Settled, ToolCallRequest
from coordinator.policy.rules.call_text import set_call_folder
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
MOST_OF_EDIT = 4_000  # characters; Claude Code cuts at 10,000
AT_A_LOSS = "Signalbox met an error and cannot tell whether its rules allow this call."


@dataclass(frozen=True, slots=True)
class AgentReply:
    """What an agent is answered.

    `answer` is in the agent's own JSON; None is an empty body, after which the agent goes on. `denial` is why the
    call does not run, None where it may.
    """

    answer: Answer | None
    denial: str | None = None


@dataclass(frozen=True, slots=True)
class MessagePieces:
    """How an agent sends messages piece by piece: `of` reads a hook (None: no piece); `whole` makes the event."""

    of: Callable[[AgentHook], MessagePiece | None]
    whole: Callable[[AgentHook, str, str, str], DedupedEvent]


def never_postpone(_hook: AgentHook, _started: str) -> AgentReply | None:
    return None


def add_context_note(hook: AgentHook, answer: Answer, text: str) -> Answer:
    """Return the answer with a text for the model, as Claude Code and most others after it read it."""
    hook_specific_output = answer.get("hookSpecificOutput") or {"hookEventName": hook.name}
    return answer | {"hookSpecificOutput": hook_specific_output | {"additionalContext": text}}


def describe_input_edit(who: str, before: Mapping[str, Any], after: Any) -> str:
    """Return what the model is told of its call that a person changed."""
    changed = {
        name: value for name, value in after.items() if before.get(name, value) != value or name not in before
    }
    dropped = [name for name in before if name not in after]
    parts = [f"{name} to {json.dumps(value, ensure_ascii=False)}" for name, value in changed.items()]
    parts += [f"{name} to nothing" for name in dropped]
    edit_notice = f"A person ({who}) changed this call in Signalbox before it ran: {', '.join(parts)}"
    end = "…" if len(edit_notice) > MOST_OF_EDIT else "."
    return f"{edit_notice[:MOST_OF_EDIT]}{end} The call as you made it did not run."


def return_hook_unchanged(hook: AgentHook) -> AgentHook:
    return hook


def always_accepts_notes(_hook: AgentHook) -> bool:
    return True


def return_call_unchanged(_hook: AgentHook, call: ToolCallRequest) -> ToolCallRequest:
    return call


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How one agent's hooks are read and answered.

    Of its hooks (by name), `calls` tell of a call before it runs, and their answers decide it; by `prompts` among
    them the agent asks its own person at the same time; after an answer to `edits` it runs an edited input.
    No hook tells of the result of calls that `without_result` tell of: they end with the answer.
    `beginnings` are a person's: an ended session runs again. At `turn_ends` no message is unfinished any more.

    `read` makes a hook of a body and the time of its receipt, and raises Invalid; `events_of` makes events of a
    hook in a session of ours; `subject` is what a tool's call is about, in one text that rules look at.
    `call_in` says which of `calls` a body may be that cannot be read or did not arrive (None), at worst.

    `say` puts a decision (allow, deny or ask) about a call into the answer to the hook of that name, with the
    reason and what a person added ("updated_input", "suggestions"). None where the agent's own prompt, which stands
    already, asks; where the agent cannot be told to ask (`can_ask`), ask is a denial.

    `postpone` says, where the agent can, that it shall end now and ask about the call again when it is resumed; the
    text is how it was started, None where it cannot.

    The answers to `notes` may carry a text for the model, which `add_note` puts there, unless whatever
    posts the hook is too old for that (`knows_notes`). Empty: no hook of it can.

    `lines_have_hooks` returns the hook as one whose shell lines each come with a hook of their own: its address says
    so, which whoever wrote the settings knows.

    `edit_notes` are further hooks whose answer may, with an edited input, tell the model of the edit.

    `complete` adds to a call what only this agent tells; `offer_in_words` says what a rule does that the agent
    offers to make stand; `tools` are those to offer where a rule is written. `mcp_name` is how rules know its call of
    an MCP server's tool, as a form of `server` and `tool`; grants apply where it tells the server (`knows_servers`).
    """

    name: str
    calls: frozenset[str]
    prompts: frozenset[str]
    edits: frozenset[str]
    without_result: frozenset[str] = frozenset()
    beginnings: frozenset[str]
    turn_ends: frozenset[str]
    read: Callable[[bytes, str], AgentHook]
    events_of: Callable[[AgentHook, str], list[DedupedEvent]]
    subject: Callable[[str, Any], str]
    call_in: Callable[[bytes | None], str | None]
    say: Callable[[str, str, str, Mapping[str, Any]], AgentReply | None]
    postpone: Callable[[AgentHook, str], AgentReply | None] = never_postpone
    lines_have_hooks: Callable[[AgentHook], AgentHook] = return_hook_unchanged
    complete: Callable[[AgentHook, ToolCallRequest], ToolCallRequest] = return_call_unchanged
    offer_in_words: Callable[[Mapping[str, Any]], str] = json.dumps
    pieces: MessagePieces | None = None
    tools: tuple[str, ...] = ()
    mcp_name: str = "mcp__{server}__{tool}"
    notes: frozenset[str] = frozenset()
    edit_notes: frozenset[str] = frozenset()
    add_note: Callable[[AgentHook, Answer, str], Answer] = add_context_note
    knows_notes: Callable[[AgentHook], bool] = always_accepts_notes
    can_ask: bool = True

    @property
    def has_mcp_server_names(self) -> bool:
        """Whether a call tells of which MCP server its tool is: grants apply to no other."""
        return self.mcp_name.startswith(PREFIX)

    # --- calls --------------------------------------------------------------------------------------------

    def is_call_hook(self, hook: AgentHook) -> bool:
        """Say whether the hook reports a call before it runs."""
        return hook.name in self.calls and (hook.has_tool_name or hook.unread is not None)

    def call_subject(self, hook: AgentHook) -> str:
        """Return what the hook's call is about, in one text: what rules look at."""
        return set_call_folder(self.subject(hook.tool_name, hook.tool_input), hook.working_folder)

    def shell_line_subjects(self, hook: AgentHook, shell: ShellLines) -> list[str]:
        """Return what each shell line that runs as part of a call is about."""
        folder = hook.working_folder
        return [set_call_folder(self.subject(shell.tool, line), folder) for line in shell.tool_inputs]

    def build_asked_call(
        self, hook: AgentHook, session_id: str, agent_id: str | None, host: str | None = None
    ) -> ToolCallRequest:
        """Return the call that the hook is about; `host` is the machine that it came from."""
        received = instants.parse_instant(hook.at)
        call = ToolCallRequest(
            asks=hook.name,
            session_id=session_id,
            agent_id=agent_id,
            since_us=instants.to_microseconds(received) if received else 0,
            tool=hook.tool_name,
            tool_input=wrap_as_object(hook.tool_input),
            about=self.call_subject(hook),
            program=self.name,
            is_prompted=hook.name in self.prompts,
            is_editable=hook.name in self.edits and hook.shell_lines is None,
            subagent=hook.subagent_label,
            call_id=hook.call_id,
            folder=hook.working_folder,
            host=host,
        )
        return self.complete(hook, call)

    # --- answers ------------------------------------------------------------------------------------------

    def reply_with_ruling(self, hook: AgentHook, ruling: Ruling) -> AgentReply | None:
        """Return policy's answer, in the hook's own JSON."""
        return self.say(hook.name, ruling.decision, f"Signalbox ({ruling.by}): {ruling.reason}", {})

    def reply_with_person_verdict(
        self, hook: AgentHook, call: ToolCallRequest, settled: Settled
    ) -> AgentReply | None:
        """Return a person's answer, in the hook's own JSON, with their edits and choices."""
        added = settled.get("answer") or {}
        if not call.is_editable and added.get("updated_input", call.tool_input) != call.tool_input:
            return self.say(hook.name, DENY, NOT_AS_EDITED, {})
        approved_by, reason = settled.get("approved_by") or "somebody", settled.get("reason")
        word, decision = ("Approved", ALLOW) if settled["allowed"] else ("Denied", DENY)
        verdict_text = f"{word} by {approved_by} in Signalbox{f': {reason}' if reason else '.'}"
        reply = self.say(hook.name, decision, verdict_text, added)
        edited = added.get("updated_input", call.tool_input)
        if decision == ALLOW and edited != call.tool_input and self.can_explain_edit(hook):
            return self.add_note_to_reply(
                hook, reply, describe_input_edit(approved_by, call.tool_input or {}, edited)
            )
        return reply

    def can_explain_edit(self, hook: AgentHook) -> bool:
        """Say whether the answer to this hook may tell the model that a person changed its call."""
        return hook.name in self.notes | self.edit_notes and self.knows_notes(hook)

    def reply_to_timeout(self, hook: AgentHook, seconds: float, *, deny: bool) -> AgentReply | None:
        """Return what to say when nobody answered in time; None leaves the call to the agent's own prompt.

        A call that policy wanted asked has no prompt yet where the agent did not mean to ask: it is told to show
        one, or to deny where it has none, else a call that the agent's own rules let through would run without
        anybody's word.
        """
        timeout_text = f"Nobody answered in Signalbox within {seconds:.0f} s."
        return self.say(hook.name, DENY if deny else ASK, timeout_text, {})

    def can_carry_note(self, hook: AgentHook) -> bool:
        """Say whether the answer to this hook may carry a note. Sub-agents get none: it is not for them."""
        return hook.name in self.notes and hook.subagent_label is None and self.knows_notes(hook)

    def add_note_to_reply(self, hook: AgentHook, reply: AgentReply | None, text: str) -> AgentReply:
        """Return the reply with a note for the model; what it decides stays."""
        answer = self.add_note(hook, (reply.answer if reply is not None else None) or {}, text)
        return AgentReply(answer, reply.denial if reply is not None else None)

    def deny_until_approved(self, hook: AgentHook, held: Settled) -> AgentReply | None:
        """Return the denial of a call that can still be approved, and made again: `why`, `request_id`, `link`, `until`.

        The model reads it, so it says what to do, and gives no reason to look for a way around.
        """
        until = held["until"]
        denial_text = (
            f"{held['why']} So this call did not run. A person can still approve it"
            f"{f', until {until:%Y-%m-%d %H:%M} UTC' if until else ''}: request {held['request_id']}, {held['link']}"
            " Ask for that, and then make exactly the same call again: it runs once. Do not try another way."
        )
        return self.say(hook.name, DENY, denial_text, {})

    def reply_without_person(self, name: str, ruling: Ruling, why: str) -> AgentReply | None:
        """Return what to say to the hook `name` where policy denies, or asks and no person could decide (`why`).

        None where the agent's own prompt stands already, and where policy neither denies nor asks.
        """
        if ruling.decision not in {ASK, DENY}:
            return None
        rule = f"Signalbox ({ruling.by}): {ruling.reason}" if ruling.by else ruling.reason
        denial_text = " ".join(filter(None, [rule, why]))
        denies = ruling.decision == DENY or ruling.deny_at_deadline
        return self.say(name, DENY if denies else ASK, denial_text, {})

    def rule_on_unreadable_call(
        self, name: str, ruling: Ruling, why: str, *, is_broken: bool = True
    ) -> Ruling:
        """Return what becomes of a call that could not be read (`why`), where policy at worst says this of it.

        A body that `is_broken` will not be better next time: its call is denied where policy asks or denies, unless
        the agent's own prompt stands already and may decide. Otherwise that stays, with this reason in place of its
        own, which may be about other calls.
        """
        asks_there = name in self.prompts and ruling.decision == ASK and not ruling.deny_at_deadline
        if ruling.decision not in {ASK, DENY} or (is_broken and asks_there):
            return NO_OPINION
        decision = DENY if is_broken else ruling.decision
        ruling_text = f"{COULD_NOT_READ} {why} {UNREAD_ADVICE if decision == DENY else ''}".strip()
        return Ruling(decision, ruling_text, deny_at_deadline=ruling.deny_at_deadline)

    def deny_unknown_call(self) -> AgentReply | None:
        """Return the denial of a call about which nothing is known."""
        return self.say(self.call_in(None) or "", DENY, AT_A_LOSS, {})

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
        tells = hook.name in self.turn_ends or (hook.name in self.calls and hook.has_tool_name)
        return [unread, *(self.events_of(hook, session_id) if tells else [])]

    def build_denied_call_result(
        self, hook: AgentHook, session_id: str, call_id: str, why: str
    ) -> DedupedEvent:
        """Return the result of a call that our answer denies; no hook will report one."""
        return self.build_call_end_event(hook, session_id, call_id, why)

    def build_unreported_call_end(self, hook: AgentHook, session_id: str) -> DedupedEvent | None:
        """Return the end of a call that runs and of whose result no hook tells; None for any other hook."""
        if hook.name not in self.without_result or hook.call_id is None or not self.is_call_hook(hook):
            return None
        return self.build_call_end_event(hook, session_id, hook.call_id, None)

    def build_call_end_event(
        self, hook: AgentHook, session_id: str, call_id: str, error: str | None
    ) -> DedupedEvent:
        return HookEventBuilder(hook, session_id, self.name).build_hook_event(
            "post_tool",
            uses=hook.fields,
            tool_name=hook.tool_name,
            tool_input=wrap_as_object(hook.tool_input),
            tool_use_id=call_id,
            error=error,
            origin=call_result_origin(hook.session, call_id),
        )
