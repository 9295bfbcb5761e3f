"""Gemini CLI's dialect: its hooks as events, and answers in its own JSON.

Recorded and tried with version 0.61.0 (`@google/gemini-cli`); what it does with an answer was read in that version's
own code. Its hooks include the time, but no turn and no call id: a call's id is made here, and the timeline finds its
result. The answer allow to a BeforeTool lets its own rules decide, which may ask in its terminal. The answer ask does
so, too, but without a terminal (`gemini -p`) it then hangs for ever, so ask is never sent.
Before each request to its model it sends PreCompress, whether or not it compresses anything: that is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coordinator.client import plan_files
from coordinator.client.tool_names import build_mcp_call_name
from coordinator.dialects import hooks
from coordinator.dialects.dialect_base import AgentReply, Answer, Dialect
from coordinator.dialects.hooks import AgentHook, HookEventBuilder, HookWithoutCallId, Meaning
from coordinator.lib import instants
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.policy.rules.tool_rules import ASK, DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import TURN_END

SOURCE = "gemini"
BEFORE = "BeforeTool"
CALLS = frozenset({BEFORE})
SECOND_US = (
    1_000_000  # ends in one second or the next are one: nobody resumes a session and leaves it so soon
)
# What tool calls are about, by tool: the text that a rule's pattern looks at.
SUBJECTS = {
    "run_shell_command": "command",
    "write_file": "file_path",
    "replace": "file_path",
    "read_file": "file_path",
    "read_many_files": "include",
    "list_directory": "dir_path",
    "glob": "pattern",
    "grep_search": "pattern",
    "web_fetch": "prompt",
    "google_web_search": "query",
    "invoke_agent": "prompt",
}


@dataclass(frozen=True, slots=True)
class GeminiHook(HookWithoutCallId):
    """A hook of Gemini CLI."""

    begins_call: ClassVar[frozenset[str]] = CALLS

    @property
    def has_tool_name(self) -> bool:
        """Whether the hook says which tool it is about; of one that is cut off the MCP server may be missing."""
        tool = self.text_field("tool_name")
        return tool is not None and not (self.unread is not None and tool.startswith("mcp_"))

    @property
    def tool_name(self) -> str:
        """The tool's name; that of an MCP server's tool as everywhere else, `mcp__server__tool`."""
        mcp_context = self.fields.get("mcp_context")
        if isinstance(mcp_context, dict):
            server, tool = mcp_context.get("server_name"), mcp_context.get("tool_name")
            if isinstance(server, str) and isinstance(tool, str) and server and tool:
                return build_mcp_call_name(server, tool)
        return self.text_field("tool_name") or "tool"


def build_gemini_call_result_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return the result: what the person saw and what the model received, or the error."""
    tool_response = build.hook.fields.get("tool_response")
    error = tool_response.get("error") if isinstance(tool_response, dict) else None
    uses = ["tool_input", "tool_response"]
    if not error:
        return [build.build_hook_call_event("post_tool", uses, tool_output=tool_response)]
    message = error.get("message") if isinstance(error, dict) else error
    return [
        build.build_hook_call_event(
            "post_tool", uses, error=hooks.format_value_as_text(message) or "The call failed."
        )
    ]


def build_gemini_session_end_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return the end. On Ctrl-C, version 0.61.0 reports it three times within half a second."""
    (end,) = hooks.build_session_end_events(build)
    moment = instants.parse_instant_or_none(build.hook.at)
    if build.hook.text_field("timestamp") and moment is not None:
        second = instants.instant_to_microseconds(moment) // SECOND_US
        first_event, *near = (
            hooks.make_event_origin(build.hook.session, "ends", second + off) for off in (0, -1, 1)
        )
        end.claims, end.unless = (first_event,), (first_event, *near)
    return [end]


def build_gemini_turn_end_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """The turn's text as one message, left out where its chat has reported it piece by piece, and the turn's end."""
    hook, text = build.hook, build.hook.text_field("prompt_response")
    text_parts = []
    if text:
        origins = hooks.build_text_dedup_origins(hooks.TURNS_WORDS, hook.session, text, hook.at, about=True)
        text_parts = [build.build_hook_message("assistant", text, "prompt_response", unless=origins)]
    return [*text_parts, build.build_hook_event(TURN_END, uses=["prompt", "prompt_response"])]


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": hooks.build_session_start_events,
    "SessionEnd": build_gemini_session_end_events,
    "BeforeAgent": hooks.build_prompt_events,
    "AfterAgent": build_gemini_turn_end_events,
    BEFORE: hooks.build_call_start_events,
    "AfterTool": build_gemini_call_result_events,
    "Notification": hooks.build_notification_events,
}


class GeminiDialect(Dialect):
    """Gemini CLI's hooks."""

    name = SOURCE
    calls = CALLS
    worst_call = BEFORE
    edits = CALLS
    stops = CALLS
    beginnings = frozenset({"SessionStart", "BeforeAgent"})
    turn_ends = frozenset({"AfterAgent", "SessionEnd", "BeforeAgent"})
    notes = frozenset({"AfterTool", "BeforeAgent", "SessionStart"})
    hook_type = GeminiHook
    time_field = "timestamp"
    meanings = _MEANINGS
    lines_have_tokens = True
    subjects = SUBJECTS
    can_ask = False
    cannot_ask = hooks.build_ask_unsupported_message("Gemini CLI")

    def is_redundant_hook(self, hook: AgentHook) -> bool:
        """Say whether it is the PreCompress that comes before each request to the model."""
        return hook.name == "PreCompress" and hook.text_field("trigger") == "auto"

    def copy_call_with_details(self, hook: AgentHook, call: ToolCallRequest) -> ToolCallRequest:
        """Return the call with the plan that it names, so that a person judges this plan and no later one."""
        call = super().copy_call_with_details(hook, call)
        plan = hook.text_field(plan_files.FIELD)
        if call.tool != plan_files.TOOL or plan is None:
            return call
        return replace(call, tool_input={**(call.tool_input or {}), "plan": plan})

    def build_decision_reply(
        self, _name: str, decision: str, reason: str, added: Mapping[str, Any]
    ) -> AgentReply:
        """Return the answer to a BeforeTool, which is never "ask"."""
        if decision in {ASK, DENY}:
            reason = self.format_denial_reason(decision, reason)
            return AgentReply({"decision": DENY, "reason": reason}, reason)
        answer: Answer = {"decision": decision}
        if "updated_input" in added:
            answer["hookSpecificOutput"] = {"hookEventName": BEFORE, "tool_input": added["updated_input"]}
        return AgentReply(answer)


DIALECT = GeminiDialect()
