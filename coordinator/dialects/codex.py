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

from coordinator.dialects import hooks
from coordinator.dialects.contract import Dialect, Reply
from coordinator.dialects.hooks import Hook, HookEvents, Meaning
from coordinator.policy.call_text import text_of_patch
from coordinator.policy.tool_calls import AskedCall
from coordinator.policy.tool_rules import ALLOW, ASK
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import ANYWHERE

SOURCE = "codex"
PATCH = "apply_patch"
CALLS = frozenset({"PreToolUse", "PermissionRequest"})
CANNOT_ASK = hooks.cannot_ask("Codex")


@dataclass(frozen=True, slots=True)
class CodexHook(Hook):
    """A hook of Codex."""

    in_columns: ClassVar[frozenset[str]] = frozenset({"session_id", "hook_event_name", "turn_id"})

    @property
    def turn(self) -> str | None:
        """The id of the turn."""
        return self.text("turn_id")


def _read(body: bytes, at: str) -> CodexHook:
    return hooks.read(body, at, CodexHook)


def _call_in(body: bytes | None) -> str | None:
    return hooks.call_in(body, CALLS, "PreToolUse")


def _subject(tool: str, tool_input: Any) -> str:
    """Return the call's command, the files that a patch touches, else its whole input as JSON."""
    return text_of_patch(tool_input, "command") if tool == PATCH else hooks.about(tool_input, "command")


def thread_origin(thread: str) -> str:
    """Return the origin that a session claims for a sub-agent's thread: its telemetry knows no more than the thread."""
    return f"{ANYWHERE}{hooks.origin(SOURCE, 'thread', thread)}"


def _events_of(hook: Hook, session_id: str) -> list[DedupedEvent]:
    build = HookEvents(hook, session_id, SOURCE)
    events = build.told_by(_MEANINGS)
    if thread := hook.text("agent_id"):
        for event in events:
            event.claims = (*event.claims, thread_origin(thread))
    return events


def _session_starts(build: HookEvents) -> list[DedupedEvent]:
    """A session begins; from now on its hooks report its prompts, whenever its telemetry comes."""
    events = hooks.session_starts(build)
    for event in events:
        event.claims = (hooks.heard(build.hook.session, "prompts"),)
    return events


def _call_ends(build: HookEvents) -> list[DedupedEvent]:
    """A call has its result; left out where Codex's telemetry has reported it already."""
    events = hooks.call_ends(build)
    if build.hook.call_id:
        for event in events:
            event.unless = (hooks.summary_origin(build.hook.session, build.hook.call_id),)
    return events


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": _session_starts,
    "SessionEnd": hooks.session_ends,
    "UserPromptSubmit": hooks.prompted,
    "PreToolUse": hooks.call_starts,
    "PostToolUse": _call_ends,
    "PermissionRequest": hooks.asked,
    "Stop": hooks.turn_ends,
}


def _complete(hook: Hook, call: AskedCall) -> AskedCall:
    """Remove the description from a PermissionRequest's command, so that it equals the call of the PreToolUse hook."""
    details = {
        "cwd": hook.folder,
        "permission_mode": hook.text("permission_mode"),
        "model": hook.text("model"),
    }
    if call.is_prompted and call.tool_input and call.tool_input.keys() == {"command", "description"}:
        command, described = call.tool_input["command"], call.tool_input["description"]
        words = described if isinstance(described, str) else None
        return replace(call, tool_input={"command": command}, described=words, details=details)
    return replace(call, details=details)


def _say(name: str, decision: str, words: str, added: Mapping[str, Any]) -> Reply | None:
    if name == "PreToolUse":
        return _before_the_call(decision, words, added)
    if decision == ASK:
        return None
    if decision == ALLOW:
        return _reply(name, None, decision={"behavior": "allow"})
    return _reply(name, words, decision={"behavior": "deny", "message": words})


def _before_the_call(decision: str, words: str, added: Mapping[str, Any]) -> Reply:
    name = "PreToolUse"
    if decision != ALLOW:
        why = f"{words} {CANNOT_ASK}" if decision == ASK else words
        return _reply(name, why, permissionDecision="deny", permissionDecisionReason=why)
    if "updated_input" in added:
        return _reply(name, None, permissionDecision="allow", updatedInput=added["updated_input"])
    return Reply(None)


def _reply(name: str, denial: str | None, **fields: Any) -> Reply:
    return Reply({"hookSpecificOutput": {"hookEventName": name, **fields}}, denial)


DIALECT = Dialect(
    name=SOURCE,
    can_ask=False,
    calls=CALLS,
    prompts=frozenset({"PermissionRequest"}),
    edits=frozenset({"PreToolUse"}),
    beginnings=frozenset({"SessionStart", "UserPromptSubmit"}),
    turn_ends=frozenset({"Stop", "SessionEnd", "UserPromptSubmit"}),
    read=_read,
    events_of=_events_of,
    subject=_subject,
    call_in=_call_in,
    say=_say,
    complete=_complete,
    tools=("Bash", PATCH),
    notes=frozenset({"PostToolUse", "UserPromptSubmit", "SessionStart"}),
    edit_notes=frozenset({"PreToolUse"}),
)
