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
from coordinator.dialects.contract import AgentReply, Answer, Dialect, MessagePieces
from coordinator.dialects.hooks import (
    AgentHook,
    HookEventBuilder,
    Meaning,
    ShellLines,
    call_result_origin,
    format_value_as_text,
    make_event_origin,
    wrap_as_object,
)
from coordinator.policy.requests.tool_calls import ToolCallRequest
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
LONGEST_REASON = 9_000  # Claude Code cuts at 10,000 characters

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
KEPT_IN = {
    "session": "for this session",
    "localSettings": "in this project, for me",
    "projectSettings": "in this project, for everybody",
    "userSettings": "in all my projects",
}


@dataclass(frozen=True, slots=True)
class ClaudeHook(AgentHook):
    """A hook of Claude Code.

    The call of a skill, and a slash command that a person typed, run the shell lines of their text while it is
    loaded. Versions without SKILL_COMMAND tell of none: there `signalbox hook` adds them (SKILL_FIELD), and they count
    as part of the call's input.
    """

    in_columns: ClassVar[frozenset[str]] = AgentHook.in_columns | {SKILL_FIELD}

    @property
    def shell_lines(self) -> ShellLines | None:
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
            return self.shell_lines is not None
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
        shell = self.shell_lines if self.name in CALLS and isinstance(skill_lines, dict) else None
        if shell is None or not isinstance(skill_lines, dict):
            return tool_input
        files = skill_lines.get("files")
        added = {"shell_lines": list(shell.lines), "files": files, "problem": shell.problem}
        return {
            **(wrap_as_object(tool_input) or {}),
            **{name: value for name, value in added.items() if value},
        }

    @property
    def call_id(self) -> str | None:
        """The call's id; a slash command has none of its own."""
        if self.name == EXPANSION and self.turn_id is not None:
            return f"{self.turn_id}:expansion"
        return self.text_field("tool_use_id")


def read_claude_hook(body: bytes, at: str) -> ClaudeHook:
    """Read a posted hook. Raises Invalid where it is no JSON object or names no session."""
    return hooks.read_agent_hook(body, at, ClaudeHook)


def mark_lines_as_hooked(hook: AgentHook) -> AgentHook:
    return replace(hook, fields=hook.fields | {SKILL_FIELD: {"held": True}})


def guess_claude_call_hook(body: bytes | None) -> str | None:
    """Return which of CALLS a body that cannot be read may be, a PreToolUse at worst."""
    return hooks.guess_call_hook(body, CALLS, "PreToolUse")


def claude_call_subject(tool: str, tool_input: Any) -> str:
    """Return what a call is about in one text: its command, path or address, else its whole input as JSON."""
    return hooks.format_call_subject(tool_input, SUBJECTS.get(tool))


# --- hooks as events --------------------------------------------------------------------------------------


def build_claude_events(hook: AgentHook, session_id: str) -> list[DedupedEvent]:
    """Return the events that the hook makes in `session_id`, in order; at least one for every hook but a piece."""
    build = HookEventBuilder(hook, session_id, SOURCE)
    return build.build_hook_events(_MEANINGS)


def build_claude_denial(build: HookEventBuilder) -> list[DedupedEvent]:
    denial_reason = format_value_as_text(build.hook.fields.get("reason"))
    error = f"Denied by Claude Code: {denial_reason}" if denial_reason else "Denied by Claude Code."
    return [build.build_hook_call_event("post_tool", ["tool_input", "reason"], error=error)]


# How Claude Code tells its model that it did not let a call run, by its own rules and nobody's word.
_REFUSED = re.compile(
    r"\A(?:Error: )?(?:This command requires approval|Claude requested permissions? to .{1,2000}haven't granted it yet"
    r"|.{1,2000} was blocked\. For security, Claude Code"
    r"|Permission to use \S{1,200} .{0,2000}has been (?:auto-)?denied)",
    re.DOTALL,
)


def describe_claude_refusal(words: str) -> str | None:
    """Return an error that says who refused a call, where these words of its result report a refusal; else None."""
    return f"Refused by Claude Code itself: {words}" if _REFUSED.match(words[:4_000]) else None


# --- tasks in the background ------------------------------------------------------------------------------

NOTICE = "task-notification"
MOST_NOTICES = 20  # in one text
FAILED_STATUSES = frozenset({"failed", "error", "killed", "stopped", "cancelled"})


@dataclass(frozen=True, slots=True)
class TaskNotice:
    """What Claude Code tells its model, in a person's place, of a task that ran in the background.

    `result` is what came of it, in words. `call_id` names the call that started it, None where it does not say.
    """

    task_id: str
    call_id: str | None
    status: str
    result: str
    duration_ms: int | None

    def task_end_values(self, session: str) -> dict[str, Any]:
        """Return the values of the event that ends the call; hooks and transcripts tell it under the same origin."""
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


def split_at_tag(text: str, tag: str) -> tuple[str, str, str] | None:
    """Return what is before, in and after the first `<tag>…</tag>`; None without one.

    No regular expression: where tags are opened and never closed it would read to the end from each of them.
    """
    before, opened, rest = text.partition(f"<{tag}>")
    inside, closed, after = rest.partition(f"</{tag}>")
    return (before, inside, after) if opened and closed else None


def parse_task_notices(text: str) -> list[TaskNotice]:
    """Return the notices of tasks that a text consists of; none where anything else stands in it."""
    notices: list[TaskNotice] = []
    while text.strip() and len(notices) < MOST_NOTICES:
        parts = split_at_tag(text, NOTICE)
        if parts is None or parts[0].strip():
            return []
        notices.append(parse_task_notice(parts[1]))
        text = parts[2]
    return notices


def parse_task_notice(text: str) -> TaskNotice:
    head, _, rest = text.partition("<result>")
    result, closed, tail = rest.rpartition("</result>")  # its words may hold tags

    def read_tag(tag: str, part: str = head) -> str:
        return (split_at_tag(part, tag) or ("", "", ""))[1].strip()

    took = read_tag("duration_ms", tail if closed else head)
    return TaskNotice(
        read_tag("task-id"),
        read_tag("tool-use-id") or None,
        read_tag("status"),
        result.strip() or read_tag("summary") or "It ended.",
        int(took) if took.isascii() and took.isdigit() and len(took) < 16 else None,
    )


def is_running_in_background(response: Any) -> bool:
    """Say whether a call's result only says that it goes on in the background."""
    if not isinstance(response, dict):
        return False
    return response.get("status") == "async_launched" or isinstance(response.get("backgroundTaskId"), str)


def build_claude_call_result(build: HookEventBuilder) -> list[DedupedEvent]:
    """A call has its result, or goes on in the background."""
    events = hooks.build_call_result_events(build)
    if is_running_in_background(build.hook.fields.get("tool_response")):
        for event in events:
            event.reason = IN_BACKGROUND
    return events


def build_claude_prompt(build: HookEventBuilder) -> list[DedupedEvent]:
    """A person typed, or Claude Code tells of tasks in their place: those end their calls."""
    notices = parse_task_notices(build.hook.text_field("prompt") or "")
    if not notices:
        return hooks.build_prompt_events(build)
    claims = hooks.prompt_claim_origins(build.hook)
    session = build.hook.session
    return [
        build.build_hook_event("post_tool", uses=["prompt"], claims=claims, **notice.task_end_values(session))
        if notice.call_id
        else build.build_hook_message("system", notice.result, "prompt", claims=claims)
        for notice in notices
    ]


def build_claude_batch_results(build: HookEventBuilder) -> list[DedupedEvent]:
    """Give each call of a finished batch its result, where no hook of its own has reported it."""
    calls = build.hook.fields.get("tool_calls")
    batch_results = []
    for call in calls if isinstance(calls, list) else []:
        if not isinstance(call, dict) or not isinstance(call.get("tool_use_id"), str):
            continue
        tool_response = call.get("tool_response")
        error = describe_claude_refusal(tool_response) if isinstance(tool_response, str) else None
        batch_results.append(
            build.build_hook_event(
                "post_tool",
                uses=["tool_calls"],
                tool_name=str(call.get("tool_name") or "tool"),
                tool_input=wrap_as_object(call.get("tool_input")),
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
    "UserPromptSubmit": build_claude_prompt,
    "Notification": hooks.build_notification_events,
    "PreToolUse": hooks.build_call_start_events,
    SKILL_COMMAND: hooks.build_call_start_events,
    EXPANSION: hooks.build_call_start_events,
    "PostToolUse": build_claude_call_result,
    "PostToolUseFailure": hooks.build_call_failure_events,
    "PermissionDenied": build_claude_denial,
    "PostToolBatch": build_claude_batch_results,
    "PermissionRequest": hooks.build_permission_request_events,
    "Stop": hooks.build_turn_end_events,
    "StopFailure": hooks.build_turn_end_events,
    SUBAGENT_END: hooks.build_turn_end_events,
}


# --- questions and answers --------------------------------------------------------------------------------


def add_claude_call_details(hook: AgentHook, call: ToolCallRequest) -> ToolCallRequest:
    offered = hook.fields.get("permission_suggestions")
    return replace(
        call,
        # A card shows a command in full by itself.
        target=call.about if SUBJECTS.get(hook.tool_name, "command") != "command" else None,
        offered=tuple(suggestion for suggestion in offered if isinstance(suggestion, dict))
        if isinstance(offered, list)
        else (),
        details={
            "cwd": hook.working_folder,
            "permission_mode": hook.text_field("permission_mode"),
            **({"skill": hook.text_field("command_name")} if hook.name == SKILL_COMMAND else {}),
        },
    )


def build_claude_reply(name: str, decision: str, words: str, added: Mapping[str, Any]) -> AgentReply | None:
    """Return the answer to a PreToolUse, which can be told to ask, or to a PermissionRequest, which asks already.

    The command of a skill can only be allowed or denied, a slash command only blocked: nobody could be asked there.
    """
    edited = {"updatedInput": added["updated_input"]} if "updated_input" in added else {}
    denial = words if decision == DENY else None
    if name == "PreToolUse":
        reply_reason = words[:LONGEST_REASON]
        return hook_specific_reply(
            name,
            denial and reply_reason,
            permissionDecision=decision,
            permissionDecisionReason=reply_reason,
            **edited,
        )
    if name == SKILL_COMMAND:
        denied = decision != ALLOW
        reason = words[:LONGEST_REASON]
        decided = DENY if denied else ALLOW
        return hook_specific_reply(
            name, reason if denied else None, permissionDecision=decided, permissionDecisionReason=reason
        )
    if name == EXPANSION:
        return (
            AgentReply({}) if decision == ALLOW else AgentReply({"decision": "block", "reason": words}, words)
        )
    if decision == ASK:
        return None
    verdict: Answer = {"behavior": "deny", "message": words} if denial else {"behavior": ALLOW, **edited}
    if not denial and added.get("suggestions"):
        verdict["updatedPermissions"] = added["suggestions"]
    return hook_specific_reply(name, denial, decision=verdict)


def hook_specific_reply(name: str, denial: str | None, **fields: Any) -> AgentReply:
    return AgentReply({"hookSpecificOutput": {"hookEventName": name, **fields}}, denial)


HEADLESS = "sdk-cli"  # what CLAUDE_CODE_ENTRYPOINT says of `claude -p`


def postpone_claude_call(hook: AgentHook, started: str) -> AgentReply | None:
    """Return the answer after which a headless run ends (`stop_reason: tool_deferred`); resumed, it asks again.

    Tried with version 2.1.197, also with several calls in a turn: what was deferred did not run. Nothing but a
    headless run heeds it, and it was not tried with sub-agents.
    """
    if hook.name != "PreToolUse" or started != HEADLESS or hook.subagent_label is not None:
        return None
    return hook_specific_reply(hook.name, None, permissionDecision="defer")


def describe_permission_suggestion(suggestion: Mapping[str, Any]) -> str:
    """Return what a permission update does, in words; an unknown one unchanged."""
    where = KEPT_IN.get(str(suggestion.get("destination")), str(suggestion.get("destination") or "")).strip()
    kind, rules = suggestion.get("type"), suggestion.get("rules")
    if kind == "addRules" and isinstance(rules, list):
        names = ", ".join(format_offered_rule(rule) for rule in rules)
        return f"Always {suggestion.get('behavior', 'allow')} {names} {where}".strip()
    if kind == "setMode":
        return f"Switch to the mode {suggestion.get('mode')} {where}".strip()
    if kind == "addDirectories" and isinstance(suggestion.get("directories"), list):
        return f"Let it work in {', '.join(map(str, suggestion['directories']))} {where}".strip()
    return json.dumps(suggestion, ensure_ascii=False)


def format_offered_rule(rule: Any) -> str:
    if not isinstance(rule, dict):
        return str(rule)
    content = rule.get("ruleContent")
    return f"{rule.get('toolName')}({content})" if content else str(rule.get("toolName"))


# --- messages in pieces -----------------------------------------------------------------------------------


def read_claude_message_piece(hook: AgentHook) -> MessagePiece | None:
    """Return the piece in a MessageDisplay, or None for any other hook."""
    if hook.name != "MessageDisplay":
        return None
    place, delta = hook.fields.get("index"), hook.fields.get("delta")
    return MessagePiece(
        hook.text_field("message_id") or "message",
        place if isinstance(place, int) and 0 <= place < 2**53 else 0,
        delta if isinstance(delta, str) else "",
        hook.fields.get("final") is True,
    )


def build_claude_whole_message(hook: AgentHook, session_id: str, message_id: str, text: str) -> DedupedEvent:
    """Return the whole message as an event; the same words at the turn's end will be left out."""
    return HookEventBuilder(hook, session_id, SOURCE).build_hook_message(
        "assistant",
        text,
        "delta",
        origin=make_event_origin(hook.session, "message", message_id),
        claims=(hooks.hook_answer_origin(hook, text),),
    )


DIALECT = Dialect(
    name=SOURCE,
    calls=CALLS,
    prompts=frozenset({"PermissionRequest"}),
    edits=CALLS - {SKILL_COMMAND, EXPANSION},
    without_result=frozenset({SKILL_COMMAND, EXPANSION}),
    beginnings=frozenset({"SessionStart", "UserPromptSubmit"}),
    turn_ends=frozenset({"Stop", "StopFailure", "SessionEnd", "UserPromptSubmit"}),
    read=read_claude_hook,
    events_of=build_claude_events,
    subject=claude_call_subject,
    call_in=guess_claude_call_hook,
    say=build_claude_reply,
    postpone=postpone_claude_call,
    lines_have_hooks=mark_lines_as_hooked,
    complete=add_claude_call_details,
    offer_in_words=describe_permission_suggestion,
    pieces=MessagePieces(read_claude_message_piece, build_claude_whole_message),
    tools=tuple(SUBJECTS),
    notes=frozenset({"PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart"}),
)
