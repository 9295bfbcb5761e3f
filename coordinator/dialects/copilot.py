"""GitHub Copilot CLI's dialect: its hooks as events, and answers in its own JSON.

Only read, never run: GitHub's documentation of its hooks (`docs.github.com`, "GitHub Copilot CLI hooks reference", and
its source in `github/docs` at 927566b), seen in November 2026 when 1.0.102 was the newest version (`@github/copilot`).
It hands its hooks snake_case fields where the settings name the events in PascalCase, and only then their name; so
that is how they must be set. They tell the time, and give calls no id. A PreToolUse can be allowed, denied or asked,
and may change the input. PermissionRequest comes before Copilot's own rules are looked at, for nearly every call that
PreToolUse has told already: it is neither held nor told. What the assistant says is in no hook.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coordinator.dialects import hooks
from coordinator.dialects.contract import Answer, Dialect, Reply
from coordinator.dialects.hooks import Hook, HookEvents, HookWithoutCallId, Meaning
from coordinator.policy.tool_calls import AskedCall
from coordinator.policy.tool_rules import DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import SUBAGENT_END

SOURCE = "copilot"
BEFORE = "PreToolUse"
CALLS = frozenset({BEFORE})
# What tool calls are about, by tool: the text that a rule's pattern looks at.
SUBJECTS = {
    "bash": "command",
    "powershell": "command",
    "create": "path",
    "edit": "path",
    "view": "path",
    "glob": "pattern",
    "grep": "pattern",
    "web_fetch": "url",
    "task": "prompt",
}


@dataclass(frozen=True, slots=True)
class CopilotHook(HookWithoutCallId):
    """A hook of Copilot CLI."""

    begins_call: ClassVar[frozenset[str]] = CALLS

    @property
    def subagent(self) -> str | None:
        """Which sub-agent has stopped; other hooks do not say whose they are."""
        return self.text("agent_name")


def _read(body: bytes, at: str) -> CopilotHook:
    hook = hooks.read(body, at, CopilotHook)
    return replace(hook, at=hooks.when(hook.fields.get("timestamp"), at))


def _call_in(body: bytes | None) -> str | None:
    return hooks.call_in(body, CALLS, BEFORE)


def _subject(tool: str, tool_input: Any) -> str:
    return hooks.about(tool_input, SUBJECTS.get(tool))


def _events_of(hook: Hook, session_id: str) -> list[DedupedEvent]:
    build = HookEvents(hook, session_id, SOURCE)
    if hook.name == "PermissionRequest":
        return []
    return build.told_by(_MEANINGS)


def _call_ends(build: HookEvents) -> list[DedupedEvent]:
    """Return the result: the text that the model was told, as an error where it failed or was denied."""
    came = build.hook.fields.get("tool_result")
    uses = ["tool_input", "tool_result"]
    if not isinstance(came, dict):
        return [build.call("post_tool", uses, tool_output=came)]
    text = came.get("text_result_for_llm", came)
    if came.get("result_type") in (None, "success"):
        return [build.call("post_tool", uses, tool_output=text)]
    return [build.call("post_tool", uses, error=hooks.in_words(text) or "The call failed.")]


def _error(build: HookEvents) -> list[DedupedEvent]:
    error = build.hook.fields.get("error")
    words = error.get("message") if isinstance(error, dict) else error
    kind = "api_error" if build.hook.text("error_context") == "model_call" else "ErrorOccurred"
    return [build.event(kind, uses=["error"], error=hooks.in_words(words) or "An error.")]


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": hooks.session_starts,
    "SessionEnd": hooks.session_ends,
    "UserPromptSubmit": hooks.prompted,
    BEFORE: hooks.call_starts,
    "PostToolUse": _call_ends,
    "PostToolUseFailure": hooks.call_fails,
    "ErrorOccurred": _error,
    "Notification": hooks.notified,
    "Stop": hooks.turn_ends,
    SUBAGENT_END: hooks.turn_ends,
}


def _complete(hook: Hook, call: AskedCall) -> AskedCall:
    shown = SUBJECTS.get(hook.tool, "command") == "command"  # a card shows a command in full by itself
    return replace(call, target=None if shown else call.about, details={"cwd": hook.folder})


def _say(_name: str, decision: str, words: str, added: Mapping[str, Any]) -> Reply:
    answer: Answer = {"permissionDecision": decision, "permissionDecisionReason": words}
    if "updated_input" in added:
        answer["modifiedArgs"] = added["updated_input"]
    return Reply(answer, words if decision == DENY else None)


DIALECT = Dialect(
    name=SOURCE,
    calls=CALLS,
    prompts=frozenset(),
    edits=CALLS,
    beginnings=frozenset({"SessionStart", "UserPromptSubmit"}),
    turn_ends=frozenset({"Stop", "SessionEnd", "UserPromptSubmit"}),
    read=_read,
    events_of=_events_of,
    subject=_subject,
    call_in=_call_in,
    say=_say,
    complete=_complete,
    tools=tuple(SUBJECTS),
    mcp_name="{server}-{tool}",
)
