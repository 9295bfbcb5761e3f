"""Gemini CLI's dialect: its hooks as events, and answers in its own JSON.

Recorded and tried with version 0.61.0 (`@google/gemini-cli`); what it does with an answer was read in that version's
own code. Its hooks tell the time, and no turn and no call: a call's id is made here, and the timeline finds its
result. A BeforeTool that says allow lets its own rules decide, which may ask in its terminal. One that says ask does
so, too, but without a terminal (`gemini -p`) it then hangs for ever, so it is never told to ask.
Before each request to its model it says PreCompress, whether or not it compresses anything: that is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coordinator.client.tool_names import mcp_call_name
from coordinator.dialects import hooks
from coordinator.dialects.contract import Answer, Dialect, Reply
from coordinator.dialects.hooks import Hook, HookEvents, HookWithoutCallId, Meaning
from coordinator.lib import instants
from coordinator.policy.tool_calls import AskedCall
from coordinator.policy.tool_rules import ASK, DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import TURN_END

SOURCE = "gemini"
BEFORE = "BeforeTool"
CALLS = frozenset({BEFORE})
SECOND_US = (
    1_000_000  # ends in one second or the next are one: nobody resumes a session and leaves it so soon
)
CANNOT_ASK = hooks.cannot_ask("Gemini CLI")
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
    def tool(self) -> str:
        """The tool's name; that of an MCP server's tool as everywhere else, `mcp__server__tool`."""
        place = self.fields.get("mcp_context")
        if isinstance(place, dict):
            server, tool = place.get("server_name"), place.get("tool_name")
            if isinstance(server, str) and isinstance(tool, str) and server and tool:
                return mcp_call_name(server, tool)
        return self.text("tool_name") or "tool"


def _read(body: bytes, at: str) -> GeminiHook:
    hook = hooks.read(body, at, GeminiHook)
    return replace(hook, at=hooks.when(hook.fields.get("timestamp"), at))


def _call_in(body: bytes | None) -> str | None:
    return hooks.call_in(body, CALLS, BEFORE)


def _subject(tool: str, tool_input: Any) -> str:
    return hooks.about(tool_input, SUBJECTS.get(tool))


def _events_of(hook: Hook, session_id: str) -> list[DedupedEvent]:
    build = HookEvents(hook, session_id, SOURCE)
    if hook.name == "PreCompress" and hook.text("trigger") == "auto":
        return []
    return build.told_by(_MEANINGS)


def _call_ends(build: HookEvents) -> list[DedupedEvent]:
    """Return the result: what the person saw and what the model was told, or the error."""
    came = build.hook.fields.get("tool_response")
    error = came.get("error") if isinstance(came, dict) else None
    uses = ["tool_input", "tool_response"]
    if not error:
        return [build.call("post_tool", uses, tool_output=came)]
    words = error.get("message") if isinstance(error, dict) else error
    return [build.call("post_tool", uses, error=hooks.in_words(words) or "The call failed.")]


def _session_ends(build: HookEvents) -> list[DedupedEvent]:
    """Return the end. Where Ctrl-C ends it, version 0.61.0 tells it three times within half a second."""
    (end,) = hooks.session_ends(build)
    moment = instants.parse(build.hook.at)
    if build.hook.text("timestamp") and moment is not None:
        second = instants.to_us(moment) // SECOND_US
        this, *near = (hooks.origin(build.hook.session, "ends", second + off) for off in (0, -1, 1))
        end.claims, end.unless = (this,), (this, *near)
    return [end]


def _turn_ends(build: HookEvents) -> list[DedupedEvent]:
    """The turn's text as one message, left out where its chat has reported it piece by piece, and the turn's end."""
    hook, text = build.hook, build.hook.text("prompt_response")
    words = []
    if text:
        read = hooks.told_then(hooks.TURNS_WORDS, hook.session, text, hook.at, about=True)
        words = [build.message("assistant", text, "prompt_response", unless=read)]
    return [*words, build.event(TURN_END, uses=["prompt", "prompt_response"])]


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": hooks.session_starts,
    "SessionEnd": _session_ends,
    "BeforeAgent": hooks.prompted,
    "AfterAgent": _turn_ends,
    BEFORE: hooks.call_starts,
    "AfterTool": _call_ends,
    "Notification": hooks.notified,
}


def _complete(hook: Hook, call: AskedCall) -> AskedCall:
    shown = SUBJECTS.get(hook.tool, "command") == "command"  # a card shows a command in full by itself
    return replace(call, target=None if shown else call.about, details={"cwd": hook.folder})


def _say(_name: str, decision: str, words: str, added: Mapping[str, Any]) -> Reply:
    if decision in {ASK, DENY}:
        why = f"{words} {CANNOT_ASK}" if decision == ASK else words
        return Reply({"decision": DENY, "reason": why}, why)
    answer: Answer = {"decision": decision}
    if "updated_input" in added:
        answer["hookSpecificOutput"] = {"hookEventName": BEFORE, "tool_input": added["updated_input"]}
    return Reply(answer)


DIALECT = Dialect(
    name=SOURCE,
    can_ask=False,
    calls=CALLS,
    prompts=frozenset(),
    edits=CALLS,
    beginnings=frozenset({"SessionStart", "BeforeAgent"}),
    turn_ends=frozenset({"AfterAgent", "SessionEnd", "BeforeAgent"}),
    read=_read,
    events_of=_events_of,
    subject=_subject,
    call_in=_call_in,
    say=_say,
    complete=_complete,
    tools=tuple(SUBJECTS),
    notes=frozenset({"AfterTool", "BeforeAgent", "SessionStart"}),
)
