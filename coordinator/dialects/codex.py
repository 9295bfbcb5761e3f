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
from coordinator.dialects.contract import AgentReply, Dialect
from coordinator.dialects.hooks import AgentHook, HookEventBuilder, Meaning
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.policy.rules.call_text import build_patch_text
from coordinator.policy.rules.tool_rules import ALLOW, ASK
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import ANYWHERE

SOURCE = "codex"
PATCH = "apply_patch"
CALLS = frozenset({"PreToolUse", "PermissionRequest"})
CANNOT_ASK = hooks.cannot_ask_message("Codex")


@dataclass(frozen=True, slots=True)
class CodexHook(AgentHook):
    """A hook of Codex."""

    in_columns: ClassVar[frozenset[str]] = frozenset({"session_id", "hook_event_name", "turn_id"})

    @property
    def turn_id(self) -> str | None:
        """The id of the turn."""
        return self.text_field("turn_id")


def read_codex_hook(body: bytes, at: str) -> CodexHook:
    return hooks.read_agent_hook(body, at, CodexHook)


def guess_codex_call_hook(body: bytes | None) -> str | None:
    return hooks.guess_call_hook(body, CALLS, "PreToolUse")


def codex_call_subject(tool: str, tool_input: Any) -> str:
    """Return the call's command, the files that a patch touches, else its whole input as JSON.

    What a tool of an MCP server does with a `command` nobody knows, so that names no call of it.
    """
    if tool == PATCH:
        return build_patch_text(tool_input, "command")
    return hooks.format_call_subject(tool_input, None if tool.startswith(PREFIX) else "command")


def codex_thread_origin(thread: str) -> str:
    """Return the origin that a session claims for a sub-agent's thread: its telemetry knows no more than the thread."""
    return f"{ANYWHERE}{hooks.make_event_origin(SOURCE, 'thread', thread)}"


def build_codex_events(hook: AgentHook, session_id: str) -> list[DedupedEvent]:
    build = HookEventBuilder(hook, session_id, SOURCE)
    events = build.build_hook_events(_MEANINGS)
    if thread := hook.text_field("agent_id"):
        for event in events:
            event.claims = (*event.claims, codex_thread_origin(thread))
    return events


def build_codex_session_start(build: HookEventBuilder) -> list[DedupedEvent]:
    """A session begins; from now on its hooks report its prompts, whenever its telemetry comes."""
    events = hooks.build_session_start_events(build)
    for event in events:
        event.claims = (hooks.hook_reporting_origin(build.hook.session, "prompts"),)
    return events


def build_codex_call_result(build: HookEventBuilder) -> list[DedupedEvent]:
    """A call has its result; left out where Codex's telemetry has reported it already."""
    events = hooks.build_call_result_events(build)
    if build.hook.call_id:
        for event in events:
            event.unless = (hooks.call_summary_origin(build.hook.session, build.hook.call_id),)
    return events


_MEANINGS: dict[str, Meaning] = {
    "SessionStart": build_codex_session_start,
    "SessionEnd": hooks.build_session_end_events,
    "UserPromptSubmit": hooks.build_prompt_events,
    "PreToolUse": hooks.build_call_start_events,
    "PostToolUse": build_codex_call_result,
    "PermissionRequest": hooks.build_permission_request_events,
    "Stop": hooks.build_turn_end_events,
}


def add_codex_call_details(hook: AgentHook, call: ToolCallRequest) -> ToolCallRequest:
    """Remove the description from a PermissionRequest's command, so that it equals the call of the PreToolUse hook."""
    details = {
        "cwd": hook.working_folder,
        "permission_mode": hook.text_field("permission_mode"),
        "model": hook.text_field("model"),
    }
    if call.is_prompted and call.tool_input and call.tool_input.keys() == {"command", "description"}:
        command, described = call.tool_input["command"], call.tool_input["description"]
        words = described if isinstance(described, str) else None
        return replace(call, tool_input={"command": command}, described=words, details=details)
    return replace(call, details=details)


def build_codex_reply(name: str, decision: str, words: str, added: Mapping[str, Any]) -> AgentReply | None:
    if name == "PreToolUse":
        return build_codex_pretool_reply(decision, words, added)
    if decision == ASK:
        return None
    if decision == ALLOW:
        return codex_hook_reply(name, None, decision={"behavior": "allow"})
    return codex_hook_reply(name, words, decision={"behavior": "deny", "message": words})


def build_codex_pretool_reply(decision: str, words: str, added: Mapping[str, Any]) -> AgentReply:
    name = "PreToolUse"
    if decision != ALLOW:
        reply_reason = f"{words} {CANNOT_ASK}" if decision == ASK else words
        return codex_hook_reply(
            name, reply_reason, permissionDecision="deny", permissionDecisionReason=reply_reason
        )
    if "updated_input" in added:
        return codex_hook_reply(name, None, permissionDecision="allow", updatedInput=added["updated_input"])
    return AgentReply(None)


def codex_hook_reply(name: str, denial: str | None, **fields: Any) -> AgentReply:
    return AgentReply({"hookSpecificOutput": {"hookEventName": name, **fields}}, denial)


DIALECT = Dialect(
    name=SOURCE,
    can_ask=False,
    calls=CALLS,
    prompts=frozenset({"PermissionRequest"}),
    edits=frozenset({"PreToolUse"}),
    beginnings=frozenset({"SessionStart", "UserPromptSubmit"}),
    turn_ends=frozenset({"Stop", "SessionEnd", "UserPromptSubmit"}),
    read=read_codex_hook,
    events_of=build_codex_events,
    subject=codex_call_subject,
    call_in=guess_codex_call_hook,
    say=build_codex_reply,
    complete=add_codex_call_details,
    tools=("Bash", PATCH),
    notes=frozenset({"PostToolUse", "UserPromptSubmit", "SessionStart"}),
    edit_notes=frozenset({"PreToolUse"}),
)
