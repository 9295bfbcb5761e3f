"""Cursor's dialect: its hooks as events, and answers in its own JSON.

Only read, never run: Cursor's documentation of its hooks (`cursor.com/docs/hooks`, as others quote it), the reference
of Cupcake for Cursor 2.0 and an issue that quotes the code of cursor-agent 2026.07.23 (`cursor/cookbook`, number 50).
They include no time. A call is reported twice: by the generic preToolUse and postToolUse, with its id, and by hooks of
its kind (before and after a command, an MCP tool, a file) without one; configure one of the two sets. An answer "ask"
works for a command and an MCP tool, and not for preToolUse, which alone may change the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from coordinator.client.tool_names import build_mcp_call_name
from coordinator.dialects import hooks
from coordinator.dialects.dialect_base import AgentReply, Answer, Dialect
from coordinator.dialects.hooks import HookEventBuilder, HookWithoutCallId, Meaning
from coordinator.errors import UnprocessableRequest
from coordinator.policy.rules.tool_rules import ASK, DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import TURN_END

SOURCE = "cursor"
BEFORE_ANY = "preToolUse"
ASKABLE = frozenset({"beforeShellExecution", "beforeMCPExecution"})
CALLS = ASKABLE | {BEFORE_ANY, "beforeReadFile"}
# The tools of hooks that name none, as the generic ones name them.
TOOLS = {
    "beforeShellExecution": "Shell",
    "afterShellExecution": "Shell",
    "beforeReadFile": "Read",
    "afterFileEdit": "Edit",
}
OF_MCP = frozenset({"beforeMCPExecution", "afterMCPExecution"})
# What tool calls are about, by tool: the text that a rule's pattern looks at.
SUBJECTS = {
    "Shell": "command",
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "Delete": "file_path",
    "Grep": "pattern",
    "Task": "prompt",
}
NAMES = ("conversation_id", "session_id")


@dataclass(frozen=True, slots=True)
class CursorHook(HookWithoutCallId):
    """A hook of Cursor."""

    in_columns: ClassVar[frozenset[str]] = frozenset({*NAMES, "hook_event_name", "generation_id"})
    begins_call: ClassVar[frozenset[str]] = CALLS

    @property
    def has_tool_name(self) -> bool:
        """Whether the hook says which tool it is about; some by their own name, an MCP tool with its server."""
        if self.unread is not None and self.name in OF_MCP and self.text_field("mcp_server_name") is None:
            return False
        return self.name in TOOLS or self.text_field("tool_name") is not None

    @property
    def tool_name(self) -> str:
        """The tool's name; that of an MCP server's tool as everywhere else, where the server is named."""
        name = TOOLS.get(self.name) or self.text_field("tool_name") or "tool"
        server = self.text_field("mcp_server_name") if self.name in OF_MCP else None
        return build_mcp_call_name(server, name) if server else name

    @property
    def tool_input(self) -> Any:
        """The call's input; that of an MCP tool comes as JSON text, that of others as fields of the hook."""
        if self.name in TOOLS:
            named_fields = ("command", "file_path", "edits")
            return {name: self.fields[name] for name in named_fields if name in self.fields}
        tool_input = self.fields.get("tool_input")
        return parse_json_or_text(tool_input) if isinstance(tool_input, str) else tool_input

    @property
    def call_id(self) -> str | None:
        """The call's id, which only the generic hooks have."""
        return self.text_field("tool_use_id") or self.derived_call_id

    @property
    def turn_id(self) -> str | None:
        """The id of the turn."""
        return self.text_field("generation_id")

    @property
    def working_folder(self) -> str | None:
        """Where Cursor works: the first folder of its window, where a hook names no other."""
        roots = self.fields.get("workspace_roots")
        first = roots[0] if isinstance(roots, list) and roots else None
        return self.text_field("cwd") or (first if isinstance(first, str) and first.strip() else None)


def parse_json_or_text(text: str) -> Any:
    """Return what a JSON text says, or the text itself where it is none or names a field twice."""
    body = text.encode("utf-8", "surrogatepass")
    try:
        value = hooks.decode_json_for_storage(body)
        hooks.require_unique_json_keys(body, value)
    except UnprocessableRequest:
        return text
    return value


# --- events -----------------------------------------------------------------------------------------------


def build_cursor_call_start_events(build: HookEventBuilder) -> list[DedupedEvent]:
    # The file's content is left out: the agent reads it, people need not.
    uses = ["tool_input", "command", "file_path", "content", "attachments"]
    return [build.build_hook_call_event("pre_tool", uses)] if build.hook.has_tool_name else []


def build_cursor_call_result_events(build: HookEventBuilder) -> list[DedupedEvent]:
    fields = build.hook.fields
    result_value = next(
        (fields[name] for name in ("tool_output", "result_json", "output") if name in fields), None
    )
    uses = ["tool_input", "command", "file_path", "edits", "tool_output", "result_json", "output", "duration"]
    output = (
        parse_json_or_text(result_value)
        if isinstance(result_value, str) and "output" not in fields
        else result_value
    )
    return [
        build.build_hook_call_event(
            "post_tool", uses, tool_output=output, **cursor_call_duration_column(fields)
        )
    ]


def build_cursor_call_failure_events(build: HookEventBuilder) -> list[DedupedEvent]:
    fields = build.hook.fields
    error_text = hooks.format_value_as_text(fields.get("error_message")) or hooks.format_value_as_text(
        fields.get("failure_type")
    )
    uses = ["tool_input", "error_message", "duration"]
    return [
        build.build_hook_call_event(
            "post_tool", uses, error=error_text or "The call failed.", **cursor_call_duration_column(fields)
        )
    ]


def cursor_call_duration_column(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return how long a call took in milliseconds, where that is known."""
    took = fields.get("duration")
    is_known_duration = isinstance(took, int | float) and not isinstance(took, bool) and 0 <= took < 2**53
    return {"duration_ms": int(took)} if is_known_duration and took is not None else {}


def build_cursor_answer_events(build: HookEventBuilder) -> list[DedupedEvent]:
    text = build.hook.text_field("text")
    return [build.build_hook_message("assistant", text, "text")] if text else []


def build_cursor_session_start_events(build: HookEventBuilder) -> list[DedupedEvent]:
    model = build.hook.text_field("model")
    return [
        build.build_hook_event("session_start", uses=["model"], reason="startup", model=model, subagent=None)
    ]


def build_cursor_turn_end_events(build: HookEventBuilder) -> list[DedupedEvent]:
    failed = build.hook.text_field("status") == "error"
    error_text = build.hook.text_field("error_message") or "The turn failed."
    return [build.build_hook_event(TURN_END, uses=["status"], error=error_text if failed else None)]


_MEANINGS: dict[str, Meaning] = {
    "sessionStart": build_cursor_session_start_events,
    "sessionEnd": hooks.build_session_end_events,
    "beforeSubmitPrompt": hooks.build_prompt_events,
    **dict.fromkeys(CALLS, build_cursor_call_start_events),
    "postToolUse": build_cursor_call_result_events,
    "postToolUseFailure": build_cursor_call_failure_events,
    "afterShellExecution": build_cursor_call_result_events,
    "afterMCPExecution": build_cursor_call_result_events,
    "afterFileEdit": build_cursor_call_result_events,
    "afterAgentResponse": build_cursor_answer_events,
    "stop": build_cursor_turn_end_events,
}


# --- questions and answers --------------------------------------------------------------------------------


class CursorDialect(Dialect):
    """Cursor's hooks."""

    name = SOURCE
    calls = CALLS
    worst_call = BEFORE_ANY
    edits = frozenset({BEFORE_ANY})
    beginnings = frozenset({"sessionStart", "beforeSubmitPrompt"})
    turn_ends = frozenset({"stop", "sessionEnd", "beforeSubmitPrompt"})
    hook_type = CursorHook
    session_fields = NAMES
    meanings = _MEANINGS
    subjects = SUBJECTS
    mcp_name = "MCP:{tool}"  # as preToolUse has it; beforeMCPExecution names the server
    cannot_ask = hooks.build_ask_unsupported_message("Cursor", "its window")

    def build_decision_reply(
        self, name: str, decision: str, reason: str, added: Mapping[str, Any]
    ) -> AgentReply:
        """Return the answer; only some hooks support "ask"."""
        if decision == ASK and name not in ASKABLE:
            decision, reason = DENY, self.format_denial_reason(decision, reason)
        answer: Answer = {"permission": decision}
        if decision in {ASK, DENY}:
            answer |= {"user_message": reason, "agent_message": reason}
        if name == BEFORE_ANY and "updated_input" in added:
            answer["updated_input"] = added["updated_input"]
        return AgentReply(answer, reason if decision == DENY else None)


DIALECT = CursorDialect()
