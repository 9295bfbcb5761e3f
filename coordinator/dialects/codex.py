"""Codex's dialect: its hooks as events, and answers in its own JSON.

Recorded and tried with version 0.169.0 (`@openai/codex`). Its payloads are Claude Code's in all but a few fields: a
turn's id is `turn_id`, and a PermissionRequest names no call and carries the call's description within its input.
Its answers are fewer: a PreToolUse is denied, runs with an edited input or is not answered, and a PermissionRequest
is allowed or denied. Anything else makes Codex call the hook failed, and go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coordinator.client.tool_names import PREFIX
from coordinator.dialects import hooks
from coordinator.dialects.dialect_base import AgentReply, Dialect
from coordinator.dialects.hooks import AgentHook, HookEventBuilder, Meaning
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.policy.rules.call_text import build_call_text_from_input, build_call_text_from_patch
from coordinator.policy.rules.tool_rules import ALLOW, ASK
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import ANYWHERE

SOURCE = "codex"
PATCH = "apply_patch"


@dataclass(frozen=True, slots=True)
class CodexHook(AgentHook):
    """A hook of Codex."""

    in_columns: ClassVar[frozenset[str]] = frozenset({"session_id", "hook_event_name", "turn_id"})

    @property
    def turn_id(self) -> str | None:
        """The id of the turn."""
        return self.text_field("turn_id")


def codex_thread_dedup_origin(thread: str) -> str:
    """Return the origin that a session claims for a sub-agent's thread: its telemetry knows no more than the thread."""
    return f"{ANYWHERE}{hooks.make_event_origin(SOURCE, 'thread', thread)}"


def build_codex_session_start_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """A session begins; from now on its hooks report its prompts, whenever its telemetry comes."""
    events = hooks.build_session_start_events(build)
    for event in events:
        event.claims = (hooks.hook_coverage_origin(build.hook.session, "prompts"),)
    return events


def build_codex_call_result_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """A call has its result; left out where Codex's telemetry has reported it already."""
    events = hooks.build_call_result_events(build)
    if build.hook.call_id:
        for event in events:
            event.unless = (hooks.result_summary_dedup_origin(build.hook.session, build.hook.call_id),)
    return events


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": build_codex_session_start_events,
    "SessionEnd": hooks.build_session_end_events,
    "UserPromptSubmit": hooks.build_prompt_events,
    "PreToolUse": hooks.build_call_start_events,
    "PostToolUse": build_codex_call_result_events,
    "PermissionRequest": hooks.build_permission_request_events,
    "Stop": hooks.build_turn_end_events,
}


def codex_hook_reply(name: str, denial: str | None, **fields: Any) -> AgentReply:
    return AgentReply({"hookSpecificOutput": {"hookEventName": name, **fields}}, denial)


class CodexDialect(Dialect):
    """Codex's hooks."""

    name = SOURCE
    calls = frozenset({"PreToolUse", "PermissionRequest"})
    prompts = frozenset({"PermissionRequest"})
    edits = frozenset({"PreToolUse"})
    beginnings = frozenset({"SessionStart", "UserPromptSubmit"})
    turn_ends = frozenset({"Stop", "SessionEnd", "UserPromptSubmit"})
    notes = frozenset({"PostToolUse", "UserPromptSubmit", "SessionStart"})
    edit_notes = frozenset({"PreToolUse"})
    hook_type = CodexHook
    meanings = _MEANINGS
    subjects: ClassVar[Mapping[str, str]] = {"Bash": "command", PATCH: "command"}
    lines_have_limits = True
    detail_fields = ("permission_mode", "model")
    can_ask = False
    cannot_ask = hooks.build_ask_unsupported_message("Codex")

    def build_call_subject_text(self, tool: str, tool_input: Any) -> str:
        """Return the call's command, the files that a patch touches, else its whole input as JSON.

        What a tool of an MCP server does with a `command` nobody knows, so that names no call of it.
        """
        if tool == PATCH:
            return build_call_text_from_patch(tool_input, "command")
        return build_call_text_from_input(tool_input, None if tool.startswith(PREFIX) else "command")

    def build_hook_events(self, hook: AgentHook, session_id: str) -> list[DedupedEvent]:
        """Return what the hook means; a sub-agent's events claim its thread."""
        events = super().build_hook_events(hook, session_id)
        if thread := hook.text_field("agent_id"):
            for event in events:
                event.claims = (*event.claims, codex_thread_dedup_origin(thread))
        return events

    def copy_call_with_details(self, hook: AgentHook, call: ToolCallRequest) -> ToolCallRequest:
        """Remove the description from a PermissionRequest's command, so that it equals the PreToolUse's call."""
        call = super().copy_call_with_details(hook, call)
        if call.is_prompted and call.tool_input and call.tool_input.keys() == {"command", "description"}:
            command, described = call.tool_input["command"], call.tool_input["description"]
            described = described if isinstance(described, str) else None
            return replace(call, tool_input={"command": command}, described=described)
        return call

    def build_decision_reply(
        self, name: str, decision: str, reason: str, added: Mapping[str, Any]
    ) -> AgentReply | None:
        """Return the answer: a PreToolUse that may run unchanged gets none."""
        if name == "PreToolUse":
            if decision != ALLOW:
                reason = self.format_denial_reason(decision, reason)
                return codex_hook_reply(
                    name, reason, permissionDecision="deny", permissionDecisionReason=reason
                )
            if "updated_input" in added:
                edited = added["updated_input"]
                return codex_hook_reply(name, None, permissionDecision="allow", updatedInput=edited)
            return AgentReply(None)
        if decision == ASK:
            return None
        if decision == ALLOW:
            return codex_hook_reply(name, None, decision={"behavior": "allow"})
        return codex_hook_reply(name, reason, decision={"behavior": "deny", "message": reason})


DIALECT = CodexDialect()
