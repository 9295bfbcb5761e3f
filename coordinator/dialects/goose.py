"""Goose's dialect: its hooks as events, and answers in its own JSON.

Only read, never run: the documentation of its hooks (`guides/context-engineering/hooks` in the repository
`block/goose` at 0825b57, 2026; hooks exist since 1.38). They tell no time, and each call's id. A PreToolUse is allowed
or blocked; it cannot be told to ask, and runs no edited input. A result is not told, only that there is one. Hooks of
one kind of tool (before a command, after an edit) repeat what the general ones say and are left out. A tool is named
`extension__tool`: whether the extension is an MCP server is not told, so rules apply to it and grants do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coordinator.dialects import hooks
from coordinator.dialects.contract import Dialect, Reply
from coordinator.dialects.hooks import Hook, HookEvents, Meaning
from coordinator.policy.tool_calls import AskedCall
from coordinator.policy.tool_rules import ALLOW, ASK
from coordinator.sessions.events import DedupedEvent

SOURCE = "goose"
BEFORE = "PreToolUse"
CALLS = frozenset({BEFORE})
NAMED_IN = ("event", "hook_event_name")
QUIET = frozenset(
    {"PreToolUseResult", "BeforeReadFile", "AfterFileEdit", "BeforeShellExecution", "AfterShellExecution"}
)
CANNOT_ASK = hooks.cannot_ask("Goose")
# What tool calls are about, by tool: the text that a rule's pattern looks at.
SUBJECTS = {
    "developer__shell": "command",
    "developer__write": "path",
    "developer__edit": "path",
    "developer__tree": "path",
    "developer__read_image": "source",
}


@dataclass(frozen=True, slots=True)
class GooseHook(Hook):
    """A hook of Goose."""

    in_columns: ClassVar[frozenset[str]] = frozenset({*NAMED_IN, "session_id", "matcher_context"})

    @property
    def call_id(self) -> str | None:
        """The call's id."""
        return self.text("tool_call_id")

    @property
    def folder(self) -> str | None:
        """Where the agent works; only hooks about tools have it."""
        return self.text("working_dir")


def _read(body: bytes, at: str) -> GooseHook:
    return hooks.read(body, at, GooseHook, named_in=NAMED_IN)


def _call_in(body: bytes | None) -> str | None:
    return hooks.call_in(body, CALLS, BEFORE, named_in=NAMED_IN)


def _subject(tool: str, tool_input: Any) -> str:
    return hooks.about(tool_input, SUBJECTS.get(tool))


def _events_of(hook: Hook, session_id: str) -> list[DedupedEvent]:
    build = HookEvents(hook, session_id, SOURCE)
    if hook.name in QUIET:
        return []
    return build.told_by(_MEANINGS)


def _prompted(build: HookEvents) -> list[DedupedEvent]:
    text = build.hook.text("message")
    return [build.message("user", text, "message")] if text else []


def _call_ends(build: HookEvents) -> list[DedupedEvent]:
    return [build.call("post_tool", ["tool_input", "tool_call_id"])]


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": hooks.session_starts,
    "SessionEnd": hooks.session_ends,
    "UserPromptSubmit": _prompted,
    BEFORE: hooks.call_starts,
    "PostToolUse": _call_ends,
    "PostToolUseFailure": hooks.call_fails,
    "Stop": hooks.turn_ends,
}


def _complete(hook: Hook, call: AskedCall) -> AskedCall:
    shown = SUBJECTS.get(hook.tool, "command") == "command"  # a card shows a command in full by itself
    return replace(call, target=None if shown else call.about, details={"cwd": hook.folder})


def _say(_name: str, decision: str, words: str, _added: Mapping[str, Any]) -> Reply:
    if decision == ALLOW:
        return Reply({"decision": "allow"})
    why = f"{words} {CANNOT_ASK}" if decision == ASK else words
    return Reply({"decision": "block", "reason": why}, why)


DIALECT = Dialect(
    name=SOURCE,
    can_ask=False,
    calls=CALLS,
    prompts=frozenset(),
    edits=frozenset(),
    beginnings=frozenset({"SessionStart", "UserPromptSubmit"}),
    turn_ends=frozenset({"Stop", "SessionEnd", "UserPromptSubmit"}),
    read=_read,
    events_of=_events_of,
    subject=_subject,
    call_in=_call_in,
    say=_say,
    complete=_complete,
    tools=tuple(SUBJECTS),
    mcp_name="{server}__{tool}",
)
