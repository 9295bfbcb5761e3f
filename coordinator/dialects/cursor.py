"""Cursor's dialect: its hooks as events, and answers in its own JSON.

Only read, never run: Cursor's documentation of its hooks (`cursor.com/docs/hooks`, as others quote it), the reference
of Cupcake for Cursor 2.0 and an issue that quotes the code of cursor-agent 2026.07.23 (`cursor/cookbook`, number 50).
They tell no time. A call is told twice over: by the generic preToolUse and postToolUse, with its id, and by hooks of
its kind (before and after a command, an MCP tool, a file) without one; set the ones or the others. An answer "ask" is
heeded for a command and an MCP tool, and not for preToolUse, which alone may change the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coordinator.client.tool_names import mcp_call_name
from coordinator.dialects import hooks
from coordinator.dialects.contract import Answer, Dialect, Reply
from coordinator.dialects.hooks import Hook, HookEvents, HookWithoutCallId, Meaning
from coordinator.errors import Invalid
from coordinator.policy.tool_calls import AskedCall
from coordinator.policy.tool_rules import ASK, DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import TURN_END

SOURCE = "cursor"
BEFORE_ANY = "preToolUse"
ASKABLE = frozenset({"beforeShellExecution", "beforeMCPExecution"})
CALLS = ASKABLE | {BEFORE_ANY, "beforeReadFile"}
CANNOT_ASK = hooks.cannot_ask("Cursor", "its window")
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
    def names_tool(self) -> bool:
        """Whether the hook says which tool it is about; some by their own name."""
        return self.name in TOOLS or self.text("tool_name") is not None

    @property
    def tool(self) -> str:
        """The tool's name; that of an MCP server's tool as everywhere else, where the server is named."""
        name = TOOLS.get(self.name) or self.text("tool_name") or "tool"
        server = self.text("mcp_server_name") if self.name in OF_MCP else None
        return mcp_call_name(server, name) if server else name

    @property
    def tool_input(self) -> Any:
        """The call's input; that of an MCP tool comes as JSON text, that of others as fields of the hook."""
        if self.name in TOOLS:
            named = ("command", "file_path", "edits")
            return {name: self.fields[name] for name in named if name in self.fields}
        given = self.fields.get("tool_input")
        return _opened(given) if isinstance(given, str) else given

    @property
    def call_id(self) -> str | None:
        """The call's id, which only the generic hooks have."""
        return self.text("tool_use_id") or self.made_id

    @property
    def turn(self) -> str | None:
        """The id of the turn."""
        return self.text("generation_id")

    @property
    def folder(self) -> str | None:
        """Where Cursor works: the first folder of its window, where a hook names no other."""
        roots = self.fields.get("workspace_roots")
        first = roots[0] if isinstance(roots, list) and roots else None
        return self.text("cwd") or (first if isinstance(first, str) and first.strip() else None)


def _opened(text: str) -> Any:
    """Return what a JSON text says, or the text where it is none."""
    try:
        return hooks.decoded(text.encode("utf-8", "surrogatepass"))
    except Invalid:
        return text


def _read(body: bytes, at: str) -> CursorHook:
    return hooks.read(body, at, CursorHook, session_in=NAMES)


def _call_in(body: bytes | None) -> str | None:
    return hooks.call_in(body, CALLS, BEFORE_ANY)


def _subject(tool: str, tool_input: Any) -> str:
    return hooks.about(tool_input, SUBJECTS.get(tool))


# --- events -----------------------------------------------------------------------------------------------


def _events_of(hook: Hook, session_id: str) -> list[DedupedEvent]:
    build = HookEvents(hook, session_id, SOURCE)
    return build.told_by(_MEANINGS)


def _call_starts(build: HookEvents) -> list[DedupedEvent]:
    # What stands in the file is not told: the agent reads it, people need not.
    uses = ["tool_input", "command", "file_path", "content", "attachments"]
    return [build.call("pre_tool", uses)] if build.hook.names_tool else []


def _call_ends(build: HookEvents) -> list[DedupedEvent]:
    fields = build.hook.fields
    came = next((fields[name] for name in ("tool_output", "result_json", "output") if name in fields), None)
    uses = ["tool_input", "command", "file_path", "edits", "tool_output", "result_json", "output", "duration"]
    output = _opened(came) if isinstance(came, str) and "output" not in fields else came
    return [build.call("post_tool", uses, tool_output=output, **_took(fields))]


def _call_fails(build: HookEvents) -> list[DedupedEvent]:
    fields = build.hook.fields
    words = hooks.in_words(fields.get("error_message")) or hooks.in_words(fields.get("failure_type"))
    uses = ["tool_input", "error_message", "duration"]
    return [build.call("post_tool", uses, error=words or "The call failed.", **_took(fields))]


def _took(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return how long a call took in milliseconds, where that is known."""
    took = fields.get("duration")
    known = isinstance(took, int | float) and not isinstance(took, bool) and 0 <= took < 2**53
    return {"duration_ms": int(took)} if known and took is not None else {}


def _answered(build: HookEvents) -> list[DedupedEvent]:
    text = build.hook.text("text")
    return [build.message("assistant", text, "text")] if text else []


def _session_starts(build: HookEvents) -> list[DedupedEvent]:
    model = build.hook.text("model")
    return [build.event("session_start", uses=["model"], reason="startup", model=model, subagent=None)]


def _turn_ends(build: HookEvents) -> list[DedupedEvent]:
    failed = build.hook.text("status") == "error"
    words = build.hook.text("error_message") or "The turn failed."
    return [build.event(TURN_END, uses=["status"], error=words if failed else None)]


_MEANINGS: dict[str, Meaning] = {
    "sessionStart": _session_starts,
    "sessionEnd": hooks.session_ends,
    "beforeSubmitPrompt": hooks.prompted,
    **dict.fromkeys(CALLS, _call_starts),
    "postToolUse": _call_ends,
    "postToolUseFailure": _call_fails,
    "afterShellExecution": _call_ends,
    "afterMCPExecution": _call_ends,
    "afterFileEdit": _call_ends,
    "afterAgentResponse": _answered,
    "stop": _turn_ends,
}


# --- questions and answers --------------------------------------------------------------------------------


def _complete(hook: Hook, call: AskedCall) -> AskedCall:
    shown = SUBJECTS.get(hook.tool, "command") == "command"  # a card shows a command in full by itself
    return replace(call, target=None if shown else call.about, details={"cwd": hook.folder})


def _say(name: str, decision: str, words: str, added: Mapping[str, Any]) -> Reply:
    if decision == ASK and name not in ASKABLE:
        decision, words = DENY, f"{words} {CANNOT_ASK}"
    answer: Answer = {"permission": decision}
    if decision in {ASK, DENY}:
        answer |= {"user_message": words, "agent_message": words}
    if name == BEFORE_ANY and "updated_input" in added:
        answer["updated_input"] = added["updated_input"]
    return Reply(answer, words if decision == DENY else None)


DIALECT = Dialect(
    name=SOURCE,
    calls=CALLS,
    prompts=frozenset(),
    edits=frozenset({BEFORE_ANY}),
    beginnings=frozenset({"sessionStart", "beforeSubmitPrompt"}),
    turn_ends=frozenset({"stop", "sessionEnd", "beforeSubmitPrompt"}),
    read=_read,
    events_of=_events_of,
    subject=_subject,
    call_in=_call_in,
    say=_say,
    complete=_complete,
    tools=tuple(SUBJECTS),
    mcp_name="MCP:{tool}",  # as preToolUse has it; beforeMCPExecution tells the server
)
