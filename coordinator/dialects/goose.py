"""Goose's dialect: its hooks as events, and answers in its own JSON.

Only read, never run: the documentation of its hooks (`guides/context-engineering/hooks` in the repository
`block/goose` at 0825b57, 2026; hooks exist since 1.38). They include each call's id, but no time. A PreToolUse is
allowed or blocked; "ask" and an edited input are not supported. A result is not included, only that there is one.
Hooks of one kind of tool (before a command, after an edit) repeat the general ones and are left out. A tool is named
`extension__tool`: whether the extension is an MCP server is unknown, so rules apply to it and grants do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from coordinator.dialects import hooks
from coordinator.dialects.dialect_base import AgentReply, Dialect
from coordinator.dialects.hooks import AgentHook, HookEventBuilder, Meaning
from coordinator.policy.rules.tool_rules import ALLOW
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import TURN_END

SOURCE = "goose"
BEFORE = "PreToolUse"
NAMED_IN = ("event", "hook_event_name")
QUIET = frozenset(
    {"PreToolUseResult", "BeforeReadFile", "AfterFileEdit", "BeforeShellExecution", "AfterShellExecution"}
)
# What tool calls are about, by tool: the text that a rule's pattern looks at.
SUBJECTS = {
    "developer__shell": "command",
    "developer__write": "path",
    "developer__edit": "path",
    "developer__tree": "path",
    "developer__read_image": "source",
}


@dataclass(frozen=True, slots=True)
class GooseHook(AgentHook):
    """A hook of Goose."""

    in_columns: ClassVar[frozenset[str]] = frozenset({*NAMED_IN, "session_id", "matcher_context"})

    @property
    def call_id(self) -> str | None:
        """The call's id."""
        return self.text_field("tool_call_id")

    @property
    def working_folder(self) -> str | None:
        """Where the agent works; only hooks about tools have it."""
        return self.text_field("working_dir")


def build_goose_prompt_events(build: HookEventBuilder) -> list[DedupedEvent]:
    text = build.hook.text_field("message")
    return [build.build_hook_message("user", text, "message")] if text else []


def build_goose_call_result_events(build: HookEventBuilder) -> list[DedupedEvent]:
    return [build.build_hook_call_event("post_tool", ["tool_input", "tool_call_id"])]


def build_goose_turn_end_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return the last words and the turn's end. Turns have no id, so the same words may be those of another turn."""
    text, end = (
        build.hook.text_field("last_assistant_message"),
        build.build_hook_event(TURN_END, uses=["last_assistant_message"]),
    )
    return [build.build_hook_message("assistant", text, "last_assistant_message"), end] if text else [end]


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": hooks.build_session_start_events,
    "SessionEnd": hooks.build_session_end_events,
    "UserPromptSubmit": build_goose_prompt_events,
    BEFORE: hooks.build_call_start_events,
    "PostToolUse": build_goose_call_result_events,
    "PostToolUseFailure": hooks.build_call_failure_events,
    "Stop": build_goose_turn_end_events,
}


class GooseDialect(Dialect):
    """Goose's hooks."""

    name = SOURCE
    calls = frozenset({BEFORE})
    beginnings = frozenset({"SessionStart", "UserPromptSubmit"})
    turn_ends = frozenset({"Stop", "SessionEnd", "UserPromptSubmit"})
    hook_type = GooseHook
    name_fields = NAMED_IN
    meanings = _MEANINGS
    subjects = SUBJECTS
    mcp_name = "{server}__{tool}"
    can_ask = False
    cannot_ask = hooks.build_ask_unsupported_message("Goose")

    def is_redundant_hook(self, hook: AgentHook) -> bool:
        """Say whether a general hook reports the same."""
        return hook.name in QUIET

    def build_decision_reply(
        self, _name: str, decision: str, reason: str, _added: Mapping[str, Any]
    ) -> AgentReply:
        """Return the answer to a PreToolUse, which does not support "ask"."""
        if decision == ALLOW:
            return AgentReply({"decision": "allow"})
        reason = self.format_denial_reason(decision, reason)
        return AgentReply({"decision": "block", "reason": reason}, reason)


DIALECT = GooseDialect()
