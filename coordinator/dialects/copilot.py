"""GitHub Copilot CLI's dialect: its hooks as events, and answers in its own JSON.

Recorded and tried with version 1.0.102 (`@github/copilot`). It hands its hooks snake_case fields, their name and
Claude Code's names of tools where the settings name the events in PascalCase; so that is how they must be set. Only
Notification still comes in camelCase. They include the time, and give calls no id. A PreToolUse can be allowed, denied
or asked, and may change the input; without a terminal, ask is a denial with the reason. PermissionRequest comes before
Copilot's own rules are checked, for nearly every call that PreToolUse has reported: it is neither held nor recorded.
The hooks of a sub-agent name a session of its own, and the one that started it as `parent_agent_id`.
Messages of the assistant are in no hook but SubagentStop, and in its transcript, which Stop names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coordinator.dialects import hooks
from coordinator.dialects.dialect_base import AgentReply, Answer, Dialect
from coordinator.dialects.hooks import AgentHook, HookEventBuilder, HookWithoutCallId, Meaning
from coordinator.policy.rules.tool_rules import DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import SUBAGENT_END

SOURCE = "copilot"
BEFORE = "PreToolUse"
CALLS = frozenset({BEFORE})
# What tool calls are about, by tool: the text that a rule's pattern looks at. First as hooks name them.
SUBJECTS = {
    "Bash": "command",
    "PowerShell": "command",
    "Write": "path",
    "Edit": "path",
    "Read": "path",
    "Glob": "pattern",
    "Grep": "pattern",
    "WebFetch": "url",
    "Agent": "prompt",
    "AskUserQuestion": "message",
    "bash": "command",
    "powershell": "command",
    "create": "path",
    "edit": "path",
    "view": "path",
    "glob": "pattern",
    "grep": "pattern",
    "web_fetch": "url",
    "task": "prompt",
    "ask_user": "message",
}
# How hooks name tools that Copilot CLI itself, and its model, call otherwise.
HOOK_TOOLS = {
    "bash": "Bash",
    "powershell": "PowerShell",
    "create": "Write",
    "edit": "Edit",
    "view": "Read",
    "glob": "Glob",
    "grep": "Grep",
    "web_fetch": "WebFetch",
    "task": "Agent",
    "ask_user": "AskUserQuestion",
}
# How the output of a command ends.
_EXIT_CODE = re.compile(r"\n?<shellId: \S{1,100} completed with exit code (-?\d{1,9})>\s*\Z")
# Of a sub-agent: its prompt is in the call that starts it, and SubagentStop reports its end.
_REPORTED_BY_PARENT = frozenset({"UserPromptSubmit", "Stop"})
_TRANSCRIPT = re.compile(r"session-state[/\\]([0-9a-fA-F-]{36})[/\\]events\.jsonl\Z")


@dataclass(frozen=True, slots=True)
class CopilotHook(HookWithoutCallId):
    """A hook of Copilot CLI."""

    begins_call: ClassVar[frozenset[str]] = CALLS

    @property
    def subagent_label(self) -> str | None:
        """Which sub-agent speaks; one that has stopped may be named only."""
        return super(CopilotHook, self).subagent_label or self.text_field("agent_name")


def copilot_session_id_of_hook(hook: AgentHook) -> str:
    """Return the session that a hook belongs to: that of the person, also for a sub-agent's hook.

    A sub-agent's hooks name who started it; where that is another sub-agent, only its end names the person's session.
    """
    if hook.text_field("agent_id") is None:
        return hook.session
    written_in = _TRANSCRIPT.search(hook.text_field("transcript_path") or "")
    return written_in[1] if written_in else hook.text_field("parent_agent_id") or hook.session


def build_copilot_call_result_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return the result: the text that the model received, as an error where it failed or was denied."""
    tool_result = build.hook.fields.get("tool_result")
    uses = ["tool_input", "tool_result"]
    if not isinstance(tool_result, dict):
        return [build.build_hook_call_event("post_tool", uses, tool_output=tool_result)]
    text = tool_result.get("text_result_for_llm", tool_result)
    if tool_result.get("result_type") in (None, "success"):
        return [build.build_hook_call_event("post_tool", uses, **parse_copilot_result_text(text))]
    return [
        build.build_hook_call_event(
            "post_tool", uses, error=hooks.format_value_as_text(text) or "The call failed."
        )
    ]


def parse_copilot_result_text(text: Any) -> dict[str, Any]:
    """Return the columns of the result that the model received; Copilot reports failed commands as successes."""
    ended = _EXIT_CODE.search(text) if isinstance(text, str) else None
    if ended is None:
        return {"tool_output": text}
    code, output_text = int(ended[1]), text[: ended.start()]
    if code == 0:
        return {"tool_output": output_text, "exit_code": 0}
    return {"error": f"Exit code {code}\n{output_text}".strip(), "exit_code": code}


def build_copilot_error_events(build: HookEventBuilder) -> list[DedupedEvent]:
    error = build.hook.fields.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    kind = "api_error" if build.hook.text_field("error_context") == "model_call" else "ErrorOccurred"
    return [
        build.build_hook_event(kind, uses=["error"], error=hooks.format_value_as_text(message) or "An error.")
    ]


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": hooks.build_session_start_events,
    "SessionEnd": hooks.build_session_end_events,
    "UserPromptSubmit": hooks.build_prompt_events,
    BEFORE: hooks.build_call_start_events,
    "PostToolUse": build_copilot_call_result_events,
    "PostToolUseFailure": hooks.build_call_failure_events,
    "ErrorOccurred": build_copilot_error_events,
    "Notification": hooks.build_notification_events,
    "Stop": hooks.build_turn_end_events,
    SUBAGENT_END: hooks.build_turn_end_events,
}


class CopilotDialect(Dialect):
    """Copilot CLI's hooks."""

    name = SOURCE
    calls = CALLS
    edits = CALLS
    beginnings = frozenset({"SessionStart", "UserPromptSubmit"})
    turn_ends = frozenset({"Stop", "SessionEnd", "UserPromptSubmit"})
    notes = frozenset({"PostToolUse", "UserPromptSubmit", "SessionStart"})
    hook_type = CopilotHook
    session_fields = ("session_id", "sessionId")
    time_field = "timestamp"
    meanings = _MEANINGS
    subjects = SUBJECTS
    mcp_name = "{server}-{tool}"

    def read_hook(self, body: bytes, at: str) -> AgentHook:
        """Return the hook as one of the person's session, also where a sub-agent sends it."""
        hook = super().read_hook(body, at)
        return replace(hook, session=copilot_session_id_of_hook(hook))

    def is_redundant_hook(self, hook: AgentHook) -> bool:
        """Say whether another hook reports the same."""
        is_reported_by_parent = hook.subagent_label is not None and hook.name in _REPORTED_BY_PARENT
        return is_reported_by_parent or hook.name == "PermissionRequest"

    def build_decision_reply(
        self, _name: str, decision: str, reason: str, added: Mapping[str, Any]
    ) -> AgentReply:
        """Return the answer to a PreToolUse."""
        answer: Answer = {"permissionDecision": decision, "permissionDecisionReason": reason}
        if "updated_input" in added:
            answer["modifiedArgs"] = added["updated_input"]
        return AgentReply(answer, reason if decision == DENY else None)

    def add_model_note_to_answer(self, _hook: AgentHook, answer: Answer, text: str) -> Answer:
        """Return the answer with a text for the model."""
        return answer | {"additionalContext": text}


DIALECT = CopilotDialect()
