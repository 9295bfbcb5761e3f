"""Qwen Code's dialect: its hooks as events, and answers in its own JSON.

Recorded and tried with version 0.24.4 (`@qwen-code/qwen-code`); what it does with an answer was read in that version's
own code. Its payloads are Claude Code's in all but a few fields, its tools Gemini CLI's. A PreToolUse can be allowed,
denied or asked, and changes no input; where nobody can be asked, ask is a denial with the reason. Before the person at
the terminal is asked it runs PermissionRequest and shows nothing meanwhile: that hook is not set, so that the person
can answer. UserPromptSubmit comes with each request to the model, with an empty prompt where nobody typed. A headless
run (`qwen -p`) sends no SessionEnd. After 60 s it lets the call run, whatever timeout its settings give the hook.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.dialects import hooks
from coordinator.dialects.dialect_base import AgentReply, Dialect
from coordinator.dialects.hooks import AgentHook, Meaning, derive_call_id
from coordinator.policy.rules.tool_rules import DENY
from coordinator.sessions.reports import SUBAGENT_END

SOURCE = "qwen-code"
BEFORE = "PreToolUse"
# What tool calls are about, by tool: the text that a rule's pattern looks at.
SUBJECTS = {
    "run_shell_command": "command",
    "monitor": "command",
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
class QwenHook(AgentHook):
    """A hook of Qwen Code."""

    @property
    def call_id(self) -> str | None:
        """The call's id, as one of ours: the agent gives it to its hooks alone, not to its transcript."""
        own = self.text_field("tool_use_id")
        return derive_call_id(self.session, own) if own else None

    @property
    def subagent_label(self) -> str | None:
        """Which sub-agent speaks: its id begins with its kind, which only some of its hooks include."""
        return self.text_field("agent_id")


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": hooks.build_session_start_events,
    "SessionEnd": hooks.build_session_end_events,
    "UserPromptSubmit": hooks.build_prompt_events,
    "Notification": hooks.build_notification_events,
    BEFORE: hooks.build_call_start_events,
    "PostToolUse": hooks.build_call_result_events,
    "PostToolUseFailure": hooks.build_call_failure_events,
    "Stop": hooks.build_turn_end_events,
    "StopFailure": hooks.build_turn_end_events,
    SUBAGENT_END: hooks.build_turn_end_events,
}


class QwenCodeDialect(Dialect):
    """Qwen Code's hooks."""

    name = SOURCE
    calls = frozenset({BEFORE})
    beginnings = frozenset({"SessionStart", "UserPromptSubmit"})
    turn_ends = frozenset({"Stop", "StopFailure", "SessionEnd"})
    notes = frozenset({"PostToolUse", "UserPromptSubmit", "SessionStart"})
    hook_type = QwenHook
    time_field = "timestamp"
    meanings = _MEANINGS
    subjects = SUBJECTS
    detail_fields = ("permission_mode",)

    def is_redundant_hook(self, hook: AgentHook) -> bool:
        """Say whether it is a prompt that nobody typed, or a sign-in that worked."""
        if hook.name == "UserPromptSubmit":
            return hook.text_field("prompt") is None
        return hook.name == "Notification" and hook.text_field("notification_type") == "auth_success"

    def build_decision_reply(
        self, name: str, decision: str, reason: str, _added: Mapping[str, Any]
    ) -> AgentReply:
        """Return the answer to a PreToolUse."""
        output = {"hookEventName": name, "permissionDecision": decision, "permissionDecisionReason": reason}
        return AgentReply({"hookSpecificOutput": output}, reason if decision == DENY else None)


DIALECT = QwenCodeDialect()
