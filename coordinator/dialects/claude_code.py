"""Claude Code's dialect: its hooks as events, and answers in its own JSON.

Read from its documentation and tried with version 2.1.197. Beyond what most agents' hooks report, it displays messages
piece by piece, summarises batches of calls, and offers rules that a person may accept ("always allow").
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coordinator.dialects import hooks
from coordinator.dialects.dialect_base import NOT_FITTING, AgentReply, Answer, Dialect
from coordinator.dialects.hooks import (
    AgentHook,
    HookEventBuilder,
    Meaning,
    ShellLines,
    call_result_origin,
    format_value_as_text,
    make_event_origin,
    wrap_non_object_value,
)
from coordinator.policy.requests import questions
from coordinator.policy.requests.tool_calls import Settled, ToolCallRequest
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import IN_BACKGROUND, SUBAGENT_END, MessagePiece

SOURCE = "claude-code"
# A shell line in a skill or a slash command, which runs as its text is loaded: from version 2.1.3xx on.
SKILL_COMMAND = "PreSkillShellCommand"
# A slash command that a person typed, before its text is loaded.
EXPANSION = "UserPromptExpansion"
CALLS = frozenset({"PreToolUse", "PermissionRequest", SKILL_COMMAND, EXPANSION})
SKILL, SHELL, TASK = "Skill", "Bash", "Agent"
SKILL_FIELD = "signalbox_skill"  # client.skill_files.FIELD
UNKNOWN_LINES = (
    "Skills and slash commands can run shell lines while they are loaded, and this hook does not say which. `signalbox"
    " hook` reads them; Claude Code 2.1.332 and newer tell each of them."
)
# In which mode it goes on with an approved plan.
MODES = {questions.PlanMode.ASK: "default", questions.PlanMode.EDITS: "acceptEdits"}
LONGEST_REASON = 9_000  # Claude Code cuts at 10,000 characters
HEADLESS = "sdk-cli"  # what CLAUDE_CODE_ENTRYPOINT says of `claude -p`

# What tool calls are about, by tool: the text that a rule's pattern looks at and that a card names.
SUBJECTS = {
    "Bash": "command",
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "Glob": "pattern",
    "Grep": "pattern",
    "WebFetch": "url",
    "WebSearch": "query",
    "Agent": "prompt",
    "Task": "prompt",
}
# Where an offered rule would be kept.
DESTINATION_LABELS = {
    "session": "for this session",
    "localSettings": "in this project, for me",
    "projectSettings": "in this project, for everybody",
    "userSettings": "in all my projects",
}


@dataclass(frozen=True, slots=True)
class ClaudeHook(AgentHook):
    """A hook of Claude Code.

    The call of a skill, and a slash command that a person typed, run the shell lines of their text while it is
    loaded. Versions without SKILL_COMMAND do not report them: there `signalbox hook` adds them (SKILL_FIELD), and they
    count as part of the call's input.
    """

    in_columns: ClassVar[frozenset[str]] = AgentHook.in_columns | {SKILL_FIELD}

    @property
    def embedded_shell_lines(self) -> ShellLines | None:
        """The shell lines that run while the hook's skill is loaded; None where they have hooks of their own."""
        if self.name != EXPANSION and self.text_field("tool_name") != SKILL:
            return None
        skill_lines = self.fields.get(SKILL_FIELD)
        skill_lines = skill_lines if isinstance(skill_lines, dict) else {"problem": UNKNOWN_LINES}
        if skill_lines.get("held") is True:
            return None
        lines = skill_lines.get("lines")
        lines = tuple(line for line in lines if isinstance(line, str)) if isinstance(lines, list) else ()
        problem = skill_lines.get("problem")
        problem = problem if isinstance(problem, str) else ""
        if not lines and not problem:
            return None
        return ShellLines(SHELL, lines, problem, is_persons=self.name == EXPANSION)

    @property
    def has_tool_name(self) -> bool:
        """Whether the hook says which tool it is about; a slash command counts where it may run shell lines."""
        if self.name == EXPANSION:
            return self.embedded_shell_lines is not None
        return self.text_field("tool_name") is not None

    @property
    def requires_tool_name(self) -> bool:
        """Whether a hook of this name about a call is incomplete where it names no tool."""
        return self.name != EXPANSION

    @property
    def tool_name(self) -> str:
        """The tool's name."""
        return SKILL if self.name == EXPANSION else self.text_field("tool_name") or "tool"

    @property
    def tool_input(self) -> Any:
        """The call's input, with the shell lines that are part of it."""
        tool_input = self.fields.get("tool_input")
        if self.name == EXPANSION:
            tool_input = {
                "skill": self.text_field("command_name") or "",
                "args": self.text_field("command_args") or "",
            }
        skill_lines = self.fields.get(SKILL_FIELD)
        shell = self.embedded_shell_lines if self.name in CALLS and isinstance(skill_lines, dict) else None
        if shell is None or not isinstance(skill_lines, dict):
            return tool_input
        files = skill_lines.get("files")
        added = {"shell_lines": list(shell.lines), "files": files, "problem": shell.problem}
        return {
            **(wrap_non_object_value(tool_input) or {}),
            **{name: value for name, value in added.items() if value},
        }

    @property
    def call_id(self) -> str | None:
        """The call's id; a slash command has none of its own."""
        if self.name == EXPANSION and self.turn_id is not None:
            return f"{self.turn_id}:expansion"
        return self.text_field("tool_use_id")


# --- hooks as events --------------------------------------------------------------------------------------


def build_claude_denial_events(build: HookEventBuilder) -> list[DedupedEvent]:
    denial_reason = format_value_as_text(build.hook.fields.get("reason"))
    error = f"Denied by Claude Code: {denial_reason}" if denial_reason else "Denied by Claude Code."
    return [build.build_hook_call_event("post_tool", ["tool_input", "reason"], error=error)]


# The texts by which Claude Code informs its model that its own rules, and no person, refused a call.
_REFUSED = re.compile(
    r"\A(?:Error: )?(?:This command requires approval|Claude requested permissions? to .{1,2000}haven't granted it yet"
    r"|.{1,2000} was blocked\. For security, Claude Code"
    r"|Permission to use \S{1,200} .{0,2000}has been (?:auto-)?denied)",
    re.DOTALL,
)


def claude_code_refusal_or_none(text: str) -> str | None:
    """Return an error that says who refused a call, where these words of its result report a refusal; else None."""
    return f"Refused by Claude Code itself: {text}" if _REFUSED.match(text[:4_000]) else None


# --- tasks in the background ------------------------------------------------------------------------------

NOTICE = "task-notification"
MOST_NOTICES = 20  # in one text
FAILED_STATUSES = frozenset({"failed", "error", "killed", "stopped", "cancelled"})


@dataclass(frozen=True, slots=True)
class TaskNotice:
    """Claude Code's notice to its model, in place of a prompt, about a task that ran in the background.

    `result` is the outcome as text. `call_id` is the id of the call that started it, None where it is not given.
    """

    task_id: str
    call_id: str | None
    status: str
    result: str
    duration_ms: int | None

    def background_task_end_values(self, session: str) -> dict[str, Any]:
        """Return the values of the event that ends the call; hooks and transcripts give it the same origin."""
        end_values = (
            {"error": self.result} if self.status in FAILED_STATUSES else {"tool_output": self.result}
        )
        return {
            "tool_name": TASK,
            "tool_use_id": self.call_id,
            "duration_ms": self.duration_ms,
            "origin": make_event_origin(
                session, NOTICE, self.task_id, self.call_id, self.status, self.result
            ),
            **end_values,
        }


def split_text_at_xml_tag(text: str, tag: str) -> tuple[str, str, str] | None:
    """Return what is before, in and after the first `<tag>…</tag>`; None without one.

    No regular expression: where tags are opened and never closed it would read to the end from each of them.
    """
    before, opened, rest = text.partition(f"<{tag}>")
    inside, closed, after = rest.partition(f"</{tag}>")
    return (before, inside, after) if opened and closed else None


def parse_task_notices(text: str) -> list[TaskNotice]:
    """Return the notices of tasks that a text consists of; none where it contains anything else."""
    notices: list[TaskNotice] = []
    while text.strip() and len(notices) < MOST_NOTICES:
        parts = split_text_at_xml_tag(text, NOTICE)
        if parts is None or parts[0].strip():
            return []
        notices.append(parse_task_notice(parts[1]))
        text = parts[2]
    return notices


def parse_task_notice(text: str) -> TaskNotice:
    head, _, rest = text.partition("<result>")
    result, closed, tail = rest.rpartition("</result>")  # its words may hold tags

    def consume_notice_tag(tag: str, part: str = head) -> str:
        return (split_text_at_xml_tag(part, tag) or ("", "", ""))[1].strip()

    took = consume_notice_tag("duration_ms", tail if closed else head)
    return TaskNotice(
        consume_notice_tag("task-id"),
        consume_notice_tag("tool-use-id") or None,
        consume_notice_tag("status"),
        result.strip() or consume_notice_tag("summary") or "It ended.",
        int(took) if took.isascii() and took.isdigit() and len(took) < 16 else None,
    )


def is_call_running_in_background(response: Any) -> bool:
    """Say whether a call's result only says that it goes on in the background."""
    if not isinstance(response, dict):
        return False
    return response.get("status") == "async_launched" or isinstance(response.get("backgroundTaskId"), str)


def build_claude_call_result_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """A call has its result, or goes on in the background."""
    events = hooks.build_call_result_events(build)
    if is_call_running_in_background(build.hook.fields.get("tool_response")):
        for event in events:
            event.reason = IN_BACKGROUND
    return events


def build_claude_prompt_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return the events of a prompt; where it is Claude Code's notices about tasks, the ends of their calls."""
    notices = parse_task_notices(build.hook.text_field("prompt") or "")
    if not notices:
        return hooks.build_prompt_events(build)
    claims = hooks.prompt_dedup_origins(build.hook)
    session = build.hook.session
    return [
        build.build_hook_event(
            "post_tool", uses=["prompt"], claims=claims, **notice.background_task_end_values(session)
        )
        if notice.call_id
        else build.build_hook_message("system", notice.result, "prompt", claims=claims)
        for notice in notices
    ]


def build_claude_batch_result_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """Give each call of a finished batch its result, where no hook of its own has reported it."""
    calls = build.hook.fields.get("tool_calls")
    batch_results = []
    for call in calls if isinstance(calls, list) else []:
        if not isinstance(call, dict) or not isinstance(call.get("tool_use_id"), str):
            continue
        tool_response = call.get("tool_response")
        error = claude_code_refusal_or_none(tool_response) if isinstance(tool_response, str) else None
        batch_results.append(
            build.build_hook_event(
                "post_tool",
                uses=["tool_calls"],
                tool_name=str(call.get("tool_name") or "tool"),
                tool_input=wrap_non_object_value(call.get("tool_input")),
                tool_output=tool_response if error is None else None,
                error=error,
                tool_use_id=call["tool_use_id"],
                origin=call_result_origin(build.hook.session, call["tool_use_id"]),
            )
        )
    return batch_results


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": hooks.build_session_start_events,
    "SessionEnd": hooks.build_session_end_events,
    "UserPromptSubmit": build_claude_prompt_events,
    "Notification": hooks.build_notification_events,
    "PreToolUse": hooks.build_call_start_events,
    SKILL_COMMAND: hooks.build_call_start_events,
    EXPANSION: hooks.build_call_start_events,
    "PostToolUse": build_claude_call_result_events,
    "PostToolUseFailure": hooks.build_call_failure_events,
    "PermissionDenied": build_claude_denial_events,
    "PostToolBatch": build_claude_batch_result_events,
    "PermissionRequest": hooks.build_permission_request_events,
    "Stop": hooks.build_turn_end_events,
    "StopFailure": hooks.build_turn_end_events,
    SUBAGENT_END: hooks.build_turn_end_events,
}


# --- questions and answers --------------------------------------------------------------------------------


def describe_permission_suggestion(suggestion: Mapping[str, Any]) -> str:
    """Return what a permission update does, in words; an unknown one unchanged."""
    where = DESTINATION_LABELS.get(
        str(suggestion.get("destination")), str(suggestion.get("destination") or "")
    ).strip()
    kind, rules = suggestion.get("type"), suggestion.get("rules")
    if kind == "addRules" and isinstance(rules, list):
        names = ", ".join(format_claude_permission_rule(rule) for rule in rules)
        return f"Always {suggestion.get('behavior', 'allow')} {names} {where}".strip()
    if kind == "setMode":
        return f"Switch to the mode {suggestion.get('mode')} {where}".strip()
    if kind == "addDirectories" and isinstance(suggestion.get("directories"), list):
        return f"Let it work in {', '.join(map(str, suggestion['directories']))} {where}".strip()
    return json.dumps(suggestion, ensure_ascii=False)


def format_claude_permission_rule(rule: Any) -> str:
    if not isinstance(rule, dict):
        return str(rule)
    content = rule.get("ruleContent")
    return f"{rule.get('toolName')}({content})" if content else str(rule.get("toolName"))


def build_claude_hook_reply(name: str, denial: str | None, **fields: Any) -> AgentReply:
    return AgentReply({"hookSpecificOutput": {"hookEventName": name, **fields}}, denial)


class ClaudeCodeDialect(Dialect):
    """Claude Code's hooks."""

    name = SOURCE
    calls = CALLS
    prompts = frozenset({"PermissionRequest"})
    stops = frozenset({"PreToolUse", "PermissionRequest"})
    edits = CALLS - {SKILL_COMMAND, EXPANSION}
    without_result = frozenset({SKILL_COMMAND, EXPANSION})
    beginnings = frozenset({"SessionStart", "UserPromptSubmit"})
    turn_ends = frozenset({"Stop", "StopFailure", "SessionEnd", "UserPromptSubmit"})
    notes = frozenset({"PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart"})
    hook_type = ClaudeHook
    meanings = _MEANINGS
    sends_pieces = True
    subjects = SUBJECTS
    detail_fields = ("permission_mode",)

    def copy_hook_marking_separate_lines(self, hook: AgentHook) -> AgentHook:
        """Return the hook as one whose shell lines each come with a hook of their own."""
        return replace(hook, fields=hook.fields | {SKILL_FIELD: {"held": True}})

    def copy_call_with_details(self, hook: AgentHook, call: ToolCallRequest) -> ToolCallRequest:
        """Return the call with the rules that Claude Code offers, and the skill whose command it is."""
        call = super().copy_call_with_details(hook, call)
        suggestions = hook.fields.get("permission_suggestions")
        offered = suggestions if isinstance(suggestions, list) else []
        skill = {"skill": hook.text_field("command_name")} if hook.name == SKILL_COMMAND else {}
        return replace(
            call,
            offered=tuple(suggestion for suggestion in offered if isinstance(suggestion, dict)),
            details={**call.details, **skill},
        )

    def build_decision_reply(
        self, name: str, decision: str, reason: str, added: Mapping[str, Any]
    ) -> AgentReply | None:
        """Return the answer to a PreToolUse, which supports "ask", or to a PermissionRequest, which asks already.

        The command of a skill can only be allowed or denied, a slash command only blocked: nobody could be asked there.
        """
        edited = {"updatedInput": added["updated_input"]} if "updated_input" in added else {}
        denial = reason if decision == DENY else None
        shown_reason = reason[:LONGEST_REASON]
        if name == "PreToolUse":
            return build_claude_hook_reply(
                name,
                denial and shown_reason,
                permissionDecision=decision,
                permissionDecisionReason=shown_reason,
                **edited,
            )
        if name == SKILL_COMMAND:
            denied = decision != ALLOW
            return build_claude_hook_reply(
                name,
                shown_reason if denied else None,
                permissionDecision=DENY if denied else ALLOW,
                permissionDecisionReason=shown_reason,
            )
        if name == EXPANSION:
            if decision == ALLOW:
                return AgentReply({})
            return AgentReply({"decision": "block", "reason": reason}, reason)
        if decision == ASK:
            return None
        verdict: Answer = {"behavior": "deny", "message": reason} if denial else {"behavior": ALLOW, **edited}
        if not denial and added.get("suggestions"):
            verdict["updatedPermissions"] = added["suggestions"]
        return build_claude_hook_reply(name, denial, decision=verdict)

    def build_turn_stopping_denial(self, hook: AgentHook, reason: str) -> AgentReply | None:
        """Return a denial that also ends the turn: by `interrupt` for a PermissionRequest, which only supports that."""
        reply = super().build_turn_stopping_denial(hook, reason)
        if reply is None or reply.denial is None or hook.name != "PermissionRequest":
            return reply
        verdict: Answer = {"behavior": "deny", "message": reply.denial, "interrupt": True}
        stopped = build_claude_hook_reply(hook.name, reply.denial, decision=verdict)
        return replace(stopped, answer=(reply.answer or {}) | (stopped.answer or {}))

    def build_question_answer_reply(
        self, hook: AgentHook, call: ToolCallRequest, settled: Settled
    ) -> AgentReply | None:
        """Return the answer to a question as its tool takes it, or the yes to a plan with the mode to go on in.

        Both repeat the input: without it Claude Code denies a tool that asks its person.
        """
        approved_by, answer = settled.get("approved_by") or "somebody", settled["answer"]
        question, tool_input = (
            questions.parse_call_question_or_none(call.tool, call.tool_input),
            call.tool_input or {},
        )
        reason = f"Answered by {approved_by} in Signalbox."
        if not isinstance(question, questions.AgentQuestions):
            mode = MODES.get(answer.get(questions.MODE))
            modes = [{"type": "setMode", "mode": mode, "destination": "session"}] if mode else []
            return self.build_decision_reply(
                hook.name, ALLOW, reason, {"updated_input": tool_input, "suggestions": modes}
            )
        answers = questions.claude_code_answers_or_none(question, answer.get(questions.ANSWERED))
        if answers is None:
            return self.build_decision_reply(hook.name, DENY, NOT_FITTING, {})
        return self.build_decision_reply(
            hook.name, ALLOW, reason, {"updated_input": {**tool_input, **answers}}
        )

    def build_postponement_reply(self, hook: AgentHook, started: str) -> AgentReply | None:
        """Return the answer after which a headless run ends (`stop_reason: tool_deferred`); resumed, it asks again.

        Tried with version 2.1.197, also with several calls in a turn: what was deferred did not run. Only headless
        runs support it, and it was not tried with sub-agents.
        """
        if hook.name != "PreToolUse" or started != HEADLESS or hook.subagent_label is not None:
            return None
        return build_claude_hook_reply(hook.name, None, permissionDecision="defer")

    def describe_offered_rule(self, rule: Mapping[str, Any]) -> str:
        """Return what a permission update does, in words."""
        return describe_permission_suggestion(rule)

    def extract_message_piece(self, hook: AgentHook) -> MessagePiece | None:
        """Return the piece in a MessageDisplay, or None for any other hook."""
        if hook.name != "MessageDisplay":
            return None
        index, delta = hook.fields.get("index"), hook.fields.get("delta")
        return MessagePiece(
            hook.text_field("message_id") or "message",
            index if isinstance(index, int) and 0 <= index < 2**53 else 0,
            delta if isinstance(delta, str) else "",
            hook.fields.get("final") is True,
        )

    def build_complete_message_event(
        self, hook: AgentHook, session_id: str, message_id: str, text: str
    ) -> DedupedEvent:
        """Return the whole message as an event; the same words at the turn's end will be left out."""
        return HookEventBuilder(hook, session_id, self.name).build_hook_message(
            "assistant",
            text,
            "delta",
            origin=make_event_origin(hook.session, "message", message_id),
            claims=(hooks.assistant_text_origin_of_hook(hook, text),),
        )


DIALECT = ClaudeCodeDialect()
