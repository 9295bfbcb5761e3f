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
from coordinator.dialects.contract import Answer, Dialect, MessagePieces, Reply
from coordinator.dialects.hooks import (
    Hook,
    HookEvents,
    Meaning,
    ShellLines,
    as_object,
    in_words,
    origin,
    result_origin,
)
from coordinator.policy.tool_calls import AskedCall
from coordinator.policy.tool_rules import ALLOW, ASK, DENY
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
class ClaudeHook(Hook):
    """A hook of Claude Code.

    The call of a skill, and a slash command that a person typed, run the shell lines of their text while it is
    loaded. Versions without SKILL_COMMAND tell of none: there `signalbox hook` adds them (SKILL_FIELD), and they count
    as part of the call's input.
    """

    in_columns: ClassVar[frozenset[str]] = Hook.in_columns | {SKILL_FIELD}

    @property
    def shell_lines(self) -> ShellLines | None:
        """The shell lines that run while the hook's skill is loaded; None where they have hooks of their own."""
        if self.name != EXPANSION and self.text("tool_name") != SKILL:
            return None
        found = self.fields.get(SKILL_FIELD)
        found = found if isinstance(found, dict) else {"problem": UNKNOWN_LINES}
        if found.get("held") is True:
            return None
        lines = found.get("lines")
        lines = tuple(line for line in lines if isinstance(line, str)) if isinstance(lines, list) else ()
        problem = found.get("problem")
        problem = problem if isinstance(problem, str) else ""
        if not lines and not problem:
            return None
        return ShellLines(SHELL, lines, problem, is_persons=self.name == EXPANSION)

    @property
    def names_tool(self) -> bool:
        """Whether the hook says which tool it is about; a slash command counts where it may run shell lines."""
        if self.name == EXPANSION:
            return self.shell_lines is not None
        return self.text("tool_name") is not None

    @property
    def needs_tool(self) -> bool:
        """Whether a hook of this name about a call is incomplete where it names no tool."""
        return self.name != EXPANSION

    @property
    def tool(self) -> str:
        """The tool's name."""
        return SKILL if self.name == EXPANSION else self.text("tool_name") or "tool"

    @property
    def tool_input(self) -> Any:
        """The call's input, with the shell lines that are part of it."""
        given = self.fields.get("tool_input")
        if self.name == EXPANSION:
            given = {"skill": self.text("command_name") or "", "args": self.text("command_args") or ""}
        found = self.fields.get(SKILL_FIELD)
        shell = self.shell_lines if self.name in CALLS and isinstance(found, dict) else None
        if shell is None or not isinstance(found, dict):
            return given
        files = found.get("files")
        added = {"shell_lines": list(shell.lines), "files": files, "problem": shell.problem}
        return {**(as_object(given) or {}), **{name: value for name, value in added.items() if value}}

    @property
    def call_id(self) -> str | None:
        """The call's id; a slash command has none of its own."""
        if self.name == EXPANSION and self.turn is not None:
            return f"{self.turn}:expansion"
        return self.text("tool_use_id")


def hook_of(body: bytes, at: str) -> ClaudeHook:
    """Read a posted hook. Raises Invalid where it is no JSON object or names no session."""
    return hooks.read(body, at, ClaudeHook)


def _lines_have_hooks(hook: Hook) -> Hook:
    return replace(hook, fields=hook.fields | {SKILL_FIELD: {"held": True}})


def call_in(body: bytes | None) -> str | None:
    """Return which of CALLS a body that cannot be read may be, a PreToolUse at worst."""
    return hooks.call_in(body, CALLS, "PreToolUse")


def subject_text(tool: str, tool_input: Any) -> str:
    """Return what a call is about in one text: its command, path or address, else its whole input as JSON."""
    return hooks.about(tool_input, SUBJECTS.get(tool))


# --- hooks as events --------------------------------------------------------------------------------------


def events_of(hook: Hook, session_id: str) -> list[DedupedEvent]:
    """Return the events that the hook makes in `session_id`, in order; at least one for every hook but a piece."""
    build = HookEvents(hook, session_id, SOURCE)
    return build.told_by(_MEANINGS)


def _call_denied(build: HookEvents) -> list[DedupedEvent]:
    why = in_words(build.hook.fields.get("reason"))
    error = f"Denied by Claude Code: {why}" if why else "Denied by Claude Code."
    return [build.call("post_tool", ["tool_input", "reason"], error=error)]


# How Claude Code tells its model that it did not let a call run, by its own rules and nobody's word.
_REFUSED = re.compile(
    r"\A(?:Error: )?(?:This command requires approval|Claude requested permissions? to .{1,2000}haven't granted it yet"
    r"|.{1,2000} was blocked\. For security, Claude Code"
    r"|Permission to use \S{1,200} .{0,2000}has been (?:auto-)?denied)",
    re.DOTALL,
)


def refused(words: str) -> str | None:
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

    def event_values(self, session: str) -> dict[str, Any]:
        """Return the values of the event that ends the call; hooks and transcripts tell it under the same origin."""
        came = {"error": self.result} if self.status in FAILED_STATUSES else {"tool_output": self.result}
        return {
            "tool_name": TASK,
            "tool_use_id": self.call_id,
            "duration_ms": self.duration_ms,
            "origin": origin(session, NOTICE, self.task_id, self.call_id, self.status, self.result),
            **came,
        }


def between(text: str, tag: str) -> tuple[str, str, str] | None:
    """Return what is before, in and after the first `<tag>…</tag>`; None without one.

    No regular expression: where tags are opened and never closed it would read to the end from each of them.
    """
    before, opened, rest = text.partition(f"<{tag}>")
    inside, closed, after = rest.partition(f"</{tag}>")
    return (before, inside, after) if opened and closed else None


def task_notices(text: str) -> list[TaskNotice]:
    """Return the notices of tasks that a text consists of; none where anything else stands in it."""
    found: list[TaskNotice] = []
    while text.strip() and len(found) < MOST_NOTICES:
        parts = between(text, NOTICE)
        if parts is None or parts[0].strip():
            return []
        found.append(_notice_of(parts[1]))
        text = parts[2]
    return found


def _notice_of(text: str) -> TaskNotice:
    head, _, rest = text.partition("<result>")
    result, closed, tail = rest.rpartition("</result>")  # its words may hold tags

    def named(tag: str, part: str = head) -> str:
        return (between(part, tag) or ("", "", ""))[1].strip()

    took = named("duration_ms", tail if closed else head)
    return TaskNotice(
        named("task-id"),
        named("tool-use-id") or None,
        named("status"),
        result.strip() or named("summary") or "It ended.",
        int(took) if took.isascii() and took.isdigit() and len(took) < 16 else None,
    )


def runs_on(response: Any) -> bool:
    """Say whether a call's result only says that it goes on in the background."""
    if not isinstance(response, dict):
        return False
    return response.get("status") == "async_launched" or isinstance(response.get("backgroundTaskId"), str)


def _call_ends(build: HookEvents) -> list[DedupedEvent]:
    """A call has its result, or goes on in the background."""
    events = hooks.call_ends(build)
    if runs_on(build.hook.fields.get("tool_response")):
        for event in events:
            event.reason = IN_BACKGROUND
    return events


def _prompted(build: HookEvents) -> list[DedupedEvent]:
    """A person typed, or Claude Code tells of tasks in their place: those end their calls."""
    notices = task_notices(build.hook.text("prompt") or "")
    if not notices:
        return hooks.prompted(build)
    claims = hooks.prompt_claims(build.hook)
    session = build.hook.session
    return [
        build.event("post_tool", uses=["prompt"], claims=claims, **notice.event_values(session))
        if notice.call_id
        else build.message("system", notice.result, "prompt", claims=claims)
        for notice in notices
    ]


def _batch(build: HookEvents) -> list[DedupedEvent]:
    """Give each call of a finished batch its result, where no hook of its own has reported it."""
    calls = build.hook.fields.get("tool_calls")
    found = []
    for call in calls if isinstance(calls, list) else []:
        if not isinstance(call, dict) or not isinstance(call.get("tool_use_id"), str):
            continue
        came = call.get("tool_response")
        error = refused(came) if isinstance(came, str) else None
        found.append(
            build.event(
                "post_tool",
                uses=["tool_calls"],
                tool_name=str(call.get("tool_name") or "tool"),
                tool_input=as_object(call.get("tool_input")),
                tool_output=came if error is None else None,
                error=error,
                tool_use_id=call["tool_use_id"],
                origin=result_origin(build.hook.session, call["tool_use_id"]),
            )
        )
    return found


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": hooks.session_starts,
    "SessionEnd": hooks.session_ends,
    "UserPromptSubmit": _prompted,
    "Notification": hooks.notified,
    "PreToolUse": hooks.call_starts,
    SKILL_COMMAND: hooks.call_starts,
    EXPANSION: hooks.call_starts,
    "PostToolUse": _call_ends,
    "PostToolUseFailure": hooks.call_fails,
    "PermissionDenied": _call_denied,
    "PostToolBatch": _batch,
    "PermissionRequest": hooks.asked,
    "Stop": hooks.turn_ends,
    "StopFailure": hooks.turn_ends,
    SUBAGENT_END: hooks.turn_ends,
}


# --- questions and answers --------------------------------------------------------------------------------


def _complete(hook: Hook, call: AskedCall) -> AskedCall:
    offered = hook.fields.get("permission_suggestions")
    return replace(
        call,
        # A card shows a command in full by itself.
        target=call.about if SUBJECTS.get(hook.tool, "command") != "command" else None,
        offered=tuple(one for one in offered if isinstance(one, dict)) if isinstance(offered, list) else (),
        details={
            "cwd": hook.folder,
            "permission_mode": hook.text("permission_mode"),
            **({"skill": hook.text("command_name")} if hook.name == SKILL_COMMAND else {}),
        },
    )


def _say(name: str, decision: str, words: str, added: Mapping[str, Any]) -> Reply | None:
    """Return the answer to a PreToolUse, which can be told to ask, or to a PermissionRequest, which asks already.

    The command of a skill can only be allowed or denied, a slash command only blocked: nobody could be asked there.
    """
    edited = {"updatedInput": added["updated_input"]} if "updated_input" in added else {}
    denial = words if decision == DENY else None
    if name == "PreToolUse":
        why = words[:LONGEST_REASON]
        return _reply(
            name, denial and why, permissionDecision=decision, permissionDecisionReason=why, **edited
        )
    if name == SKILL_COMMAND:
        denied = decision != ALLOW
        reason = words[:LONGEST_REASON]
        decided = DENY if denied else ALLOW
        return _reply(
            name, reason if denied else None, permissionDecision=decided, permissionDecisionReason=reason
        )
    if name == EXPANSION:
        return Reply({}) if decision == ALLOW else Reply({"decision": "block", "reason": words}, words)
    if decision == ASK:
        return None
    verdict: Answer = {"behavior": "deny", "message": words} if denial else {"behavior": ALLOW, **edited}
    if not denial and added.get("suggestions"):
        verdict["updatedPermissions"] = added["suggestions"]
    return _reply(name, denial, decision=verdict)


def _reply(name: str, denial: str | None, **fields: Any) -> Reply:
    return Reply({"hookSpecificOutput": {"hookEventName": name, **fields}}, denial)


HEADLESS = "sdk-cli"  # what CLAUDE_CODE_ENTRYPOINT says of `claude -p`


def _postpone(hook: Hook, started: str) -> Reply | None:
    """Return the answer after which a headless run ends (`stop_reason: tool_deferred`); resumed, it asks again.

    Tried with version 2.1.197, also with several calls in a turn: what was deferred did not run. Nothing but a
    headless run heeds it, and it was not tried with sub-agents.
    """
    if hook.name != "PreToolUse" or started != HEADLESS or hook.subagent is not None:
        return None
    return _reply(hook.name, None, permissionDecision="defer")


def offer_in_words(suggestion: Mapping[str, Any]) -> str:
    """Return what a permission update does, in words; an unknown one unchanged."""
    where = KEPT_IN.get(str(suggestion.get("destination")), str(suggestion.get("destination") or "")).strip()
    kind, rules = suggestion.get("type"), suggestion.get("rules")
    if kind == "addRules" and isinstance(rules, list):
        names = ", ".join(_rule(one) for one in rules)
        return f"Always {suggestion.get('behavior', 'allow')} {names} {where}".strip()
    if kind == "setMode":
        return f"Switch to the mode {suggestion.get('mode')} {where}".strip()
    if kind == "addDirectories" and isinstance(suggestion.get("directories"), list):
        return f"Let it work in {', '.join(map(str, suggestion['directories']))} {where}".strip()
    return json.dumps(suggestion, ensure_ascii=False)


def _rule(rule: Any) -> str:
    if not isinstance(rule, dict):
        return str(rule)
    content = rule.get("ruleContent")
    return f"{rule.get('toolName')}({content})" if content else str(rule.get("toolName"))


# --- messages in pieces -----------------------------------------------------------------------------------


def _piece_of(hook: Hook) -> MessagePiece | None:
    """Return the piece in a MessageDisplay, or None for any other hook."""
    if hook.name != "MessageDisplay":
        return None
    place, delta = hook.fields.get("index"), hook.fields.get("delta")
    return MessagePiece(
        hook.text("message_id") or "message",
        place if isinstance(place, int) and 0 <= place < 2**53 else 0,
        delta if isinstance(delta, str) else "",
        hook.fields.get("final") is True,
    )


def _message_of(hook: Hook, session_id: str, message_id: str, text: str) -> DedupedEvent:
    """Return the whole message as an event; the same words at the turn's end will be left out."""
    return HookEvents(hook, session_id, SOURCE).message(
        "assistant",
        text,
        "delta",
        origin=origin(hook.session, "message", message_id),
        claims=(hooks.words_origin(hook, text),),
    )


DIALECT = Dialect(
    name=SOURCE,
    calls=CALLS,
    prompts=frozenset({"PermissionRequest"}),
    edits=CALLS - {SKILL_COMMAND, EXPANSION},
    without_result=frozenset({SKILL_COMMAND, EXPANSION}),
    beginnings=frozenset({"SessionStart", "UserPromptSubmit"}),
    turn_ends=frozenset({"Stop", "StopFailure", "SessionEnd", "UserPromptSubmit"}),
    read=hook_of,
    events_of=events_of,
    subject=subject_text,
    call_in=call_in,
    say=_say,
    postpone=_postpone,
    lines_have_hooks=_lines_have_hooks,
    complete=_complete,
    offer_in_words=offer_in_words,
    pieces=MessagePieces(_piece_of, _message_of),
    tools=tuple(SUBJECTS),
    notes=frozenset({"PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart"}),
)
