"""GitHub Copilot CLI's dialect: its hooks as events, and answers in its own JSON.

Recorded and tried with version 1.0.102 (`@github/copilot`). It hands its hooks snake_case fields, their name and
Claude Code's names of tools where the settings name the events in PascalCase; so that is how they must be set. Only
Notification still comes in camelCase. They tell the time, and give calls no id. A PreToolUse can be allowed, denied or
asked, and may change the input; without a terminal, ask is a denial with the reason. PermissionRequest comes before
Copilot's own rules are looked at, for nearly every call that PreToolUse has told already: it is neither held nor told.
The hooks of a sub-agent name a session of its own, and the one that started it as `parent_agent_id`.
What the assistant says is in no hook but SubagentStop, and in its transcript, which Stop names.
"""

from __future__ import annotations

import re
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
}
# How the output of a command ends.
_EXIT_CODE = re.compile(r"\n?<shellId: \S{1,100} completed with exit code (-?\d{1,9})>\s*\Z")
# Of a sub-agent: its prompt stands in the call that starts it, and SubagentStop tells its end.
_TOLD_BY_PARENT = frozenset({"UserPromptSubmit", "Stop"})
_TRANSCRIPT = re.compile(r"session-state[/\\]([0-9a-fA-F-]{36})[/\\]events\.jsonl\Z")


@dataclass(frozen=True, slots=True)
class CopilotHook(HookWithoutCallId):
    """A hook of Copilot CLI."""

    begins_call: ClassVar[frozenset[str]] = CALLS

    @property
    def subagent(self) -> str | None:
        """Which sub-agent speaks; one that has stopped may be named only."""
        return super(CopilotHook, self).subagent or self.text("agent_name")


def _read(body: bytes, at: str) -> CopilotHook:
    hook = hooks.read(body, at, CopilotHook, session_in=("session_id", "sessionId"))
    return replace(hook, session=_session_of(hook), at=hooks.when(hook.fields.get("timestamp"), at))


def _session_of(hook: CopilotHook) -> str:
    """Return the session that a hook belongs to: that of the person, also where a sub-agent tells.

    A sub-agent's hooks name who started it; where that is another sub-agent, only its end tells the person's session.
    """
    if hook.text("agent_id") is None:
        return hook.session
    written_in = _TRANSCRIPT.search(hook.text("transcript_path") or "")
    return written_in[1] if written_in else hook.text("parent_agent_id") or hook.session


def _call_in(body: bytes | None) -> str | None:
    return hooks.call_in(body, CALLS, BEFORE)


def _subject(tool: str, tool_input: Any) -> str:
    return hooks.about(tool_input, SUBJECTS.get(tool))


def _events_of(hook: Hook, session_id: str) -> list[DedupedEvent]:
    build = HookEvents(hook, session_id, SOURCE)
    if hook.name == "PermissionRequest" or (hook.subagent is not None and hook.name in _TOLD_BY_PARENT):
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
        return [build.call("post_tool", uses, **outcome_of(text))]
    return [build.call("post_tool", uses, error=hooks.in_words(text) or "The call failed.")]


def outcome_of(text: Any) -> dict[str, Any]:
    """Return the columns of a call's result that its model was told: a command that failed is told as a success."""
    ended = _EXIT_CODE.search(text) if isinstance(text, str) else None
    if ended is None:
        return {"tool_output": text}
    code, said = int(ended[1]), text[: ended.start()]
    if code == 0:
        return {"tool_output": said, "exit_code": 0}
    return {"error": f"Exit code {code}\n{said}".strip(), "exit_code": code}


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


def _add_note(_hook: Hook, answer: Answer, text: str) -> Answer:
    return answer | {"additionalContext": text}


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
    notes=frozenset({"PostToolUse", "UserPromptSubmit", "SessionStart"}),
    add_note=_add_note,
)
