"""Qwen Code's dialect: its hooks as events, and answers in its own JSON.

Recorded and tried with version 0.24.4 (`@qwen-code/qwen-code`); what it does with an answer was read in that version's
own code. Its payloads are Claude Code's in all but a few fields, its tools Gemini CLI's. A PreToolUse can be allowed,
denied or asked, and changes no input; where nobody can be asked, ask is a denial with the reason. Before the person at
the terminal is asked it runs PermissionRequest and shows nothing meanwhile: that hook is not set, so that the person
can answer. UserPromptSubmit comes with each request to the model, with an empty prompt where nobody typed. A headless
run (`qwen -p`) tells no SessionEnd. After 60 s it lets the call run, whatever timeout its settings give the hook.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from coordinator.dialects import hooks
from coordinator.dialects.contract import Dialect, Reply
from coordinator.dialects.hooks import Hook, HookEvents, Meaning, made_call_id
from coordinator.policy.tool_calls import AskedCall
from coordinator.policy.tool_rules import DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import SUBAGENT_END

SOURCE = "qwen-code"
BEFORE = "PreToolUse"
CALLS = frozenset({BEFORE})
# What tool calls are about, by tool: the text that a rule's pattern looks at.
SUBJECTS = {
    "run_shell_command": "command",
    "write_file": "file_path",
    "edit": "file_path",
    "notebook_edit": "notebook_path",
    "read_file": "file_path",
    "list_directory": "path",
    "glob": "pattern",
    "grep_search": "pattern",
    "web_fetch": "url",
    "agent": "prompt",
}


@dataclass(frozen=True, slots=True)
class QwenHook(Hook):
    """A hook of Qwen Code."""

    @property
    def call_id(self) -> str | None:
        """The call's id, as one of ours: the agent gives it to its hooks alone, not to its transcript."""
        own = self.text("tool_use_id")
        return made_call_id(self.session, own) if own else None

    @property
    def subagent(self) -> str | None:
        """Which sub-agent speaks: its id begins with its kind, which only some of its hooks tell."""
        return self.text("agent_id")


def _read_hook(body: bytes, at: str) -> QwenHook:
    hook = hooks.read(body, at, QwenHook)
    return replace(hook, at=hooks.when(hook.fields.get("timestamp"), at))


def _call_in(body: bytes | None) -> str | None:
    return hooks.call_in(body, CALLS, BEFORE)


def _subject(tool: str, tool_input: Any) -> str:
    return hooks.about(tool_input, SUBJECTS.get(tool))


def _is_silent(hook: Hook) -> bool:
    """Say whether the hook tells nothing that a reader wants: a prompt that nobody typed, a sign-in that worked."""
    if hook.name == "UserPromptSubmit":
        return hook.text("prompt") is None
    return hook.name == "Notification" and hook.text("notification_type") == "auth_success"


def _events_of(hook: Hook, session_id: str) -> list[DedupedEvent]:
    if _is_silent(hook):
        return []
    return HookEvents(hook, session_id, SOURCE).told_by(_MEANINGS)


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": hooks.session_starts,
    "SessionEnd": hooks.session_ends,
    "UserPromptSubmit": hooks.prompted,
    "Notification": hooks.notified,
    BEFORE: hooks.call_starts,
    "PostToolUse": hooks.call_ends,
    "PostToolUseFailure": hooks.call_fails,
    "Stop": hooks.turn_ends,
    "StopFailure": hooks.turn_ends,
    SUBAGENT_END: hooks.turn_ends,
}


def _complete(hook: Hook, call: AskedCall) -> AskedCall:
    shown = SUBJECTS.get(hook.tool, "command") == "command"  # a card shows a command in full by itself
    details = {"cwd": hook.folder, "permission_mode": hook.text("permission_mode")}
    return replace(call, target=None if shown else call.about, details=details)


def _make_reply(name: str, decision: str, words: str, _added: Mapping[str, Any]) -> Reply:
    output = {"hookEventName": name, "permissionDecision": decision, "permissionDecisionReason": words}
    return Reply({"hookSpecificOutput": output}, words if decision == DENY else None)


def _knows_notes(hook: Hook) -> bool:
    return not _is_silent(hook)


DIALECT = Dialect(
    name=SOURCE,
    calls=CALLS,
    prompts=frozenset(),
    edits=frozenset(),
    beginnings=frozenset({"SessionStart", "UserPromptSubmit"}),
    turn_ends=frozenset({"Stop", "StopFailure", "SessionEnd"}),
    read=_read_hook,
    events_of=_events_of,
    subject=_subject,
    call_in=_call_in,
    say=_make_reply,
    complete=_complete,
    tools=tuple(SUBJECTS),
    notes=frozenset({"PostToolUse", "UserPromptSubmit", "SessionStart"}),
    knows_notes=_knows_notes,
)
