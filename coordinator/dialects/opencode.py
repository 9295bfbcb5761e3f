"""OpenCode's dialect: what Signalbox's plugin for it posts, as events, and answers for that plugin.

OpenCode has no hook commands: it loads plugins, whose functions it calls. Ours (static/plugins/opencode.js) posts
what those are handed. Recorded and tried with version 1.18.33 (`opencode-ai`). `tool.execute.before` holds each call,
and cannot make OpenCode ask; `permission.asked` tells that OpenCode asks its own person. A call's result is told by
the part of the message that holds it, also where it failed or was refused. The tools of MCP servers carry names that
do not say of which server they are (`server_tool`), so rules apply to them and grants do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeGuard

from coordinator.dialects import hooks
from coordinator.dialects.contract import AgentReply, Answer, Dialect
from coordinator.dialects.hooks import (
    AgentHook,
    HookEventBuilder,
    Meaning,
    call_result_origin,
    make_event_origin,
)
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.policy.rules.call_text import build_patch_text
from coordinator.policy.rules.tool_rules import ASK, DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST, TURN_END

SOURCE = "opencode"
BEFORE, ASKED = "tool.execute.before", "permission.asked"
CALLS = frozenset({BEFORE, ASKED})
# What tool calls are about, by tool: the text that a rule's pattern looks at.
SUBJECTS = {
    "bash": "command",
    "background_process": "command",  # of Kilo
    "edit": "filePath",
    "write": "filePath",
    "read": "filePath",
    "apply_patch": "patchText",
    "glob": "pattern",
    "grep": "pattern",
    "list": "path",
    "webfetch": "url",
    "websearch": "query",
    "task": "prompt",
}
# Of a permission that OpenCode asks for, which is named for what it is about and not for a tool.
PERMISSIONS = {"bash": "command", "edit": "filepath", "webfetch": "url", "external_directory": "filepath"}
# What the plugin does not post, and what says nothing that is not told otherwise.
QUIET = frozenset(
    {"session.updated", "session.status", "session.diff", "message.part.delta", "permission.replied"}
)
EXACT_BELOW = 2**53  # whole numbers that a float tells apart


@dataclass(frozen=True, slots=True)
class OpenCodeHook(AgentHook):
    """What the plugin posts: one of its functions, or an event."""

    in_columns: ClassVar[frozenset[str]] = frozenset(
        {"session_id", "hook_event_name", "timestamp", "event_id", "properties", "takes_notes"}
    )

    @property
    def parent_session_id(self) -> str | None:
        """The session that started this one: each sub-agent has a session of its own."""
        return self.nested_text("info", "parentID")

    def nested_property(self, *path: str) -> Any:
        """Return the value at this path within the event's properties, or None."""
        value = self.fields.get("properties")
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def nested_text(self, *path: str) -> str | None:
        """Return the text at this path within the event's properties, if it is one."""
        value = self.nested_property(*path)
        return value if isinstance(value, str) and value.strip() else None


def read_opencode_hook(body: bytes, at: str) -> OpenCodeHook:
    hook = hooks.read_agent_hook(body, at, OpenCodeHook)
    return replace(hook, at=hooks.choose_hook_time(hook.fields.get("timestamp"), at))


def guess_opencode_call_hook(body: bytes | None) -> str | None:
    return hooks.guess_call_hook(body, CALLS, BEFORE)


def opencode_call_subject(tool: str, tool_input: Any) -> str:
    if isinstance(tool_input, dict) and "patterns" in tool_input and PERMISSIONS.get(tool, "") in tool_input:
        return hooks.format_call_subject(tool_input, PERMISSIONS[tool])
    if tool == "apply_patch":
        return build_patch_text(tool_input, SUBJECTS[tool])
    return hooks.format_call_subject(tool_input, SUBJECTS.get(tool))


# --- events -----------------------------------------------------------------------------------------------


def build_opencode_events(hook: AgentHook, session_id: str, *, source: str) -> list[DedupedEvent]:
    build = HookEventBuilder(hook, session_id, source)
    meaning = _MEANINGS.get(hook.name)
    if meaning is None:
        return [] if hook.name in QUIET else [build.build_hook_milestone()]
    return meaning(build)


def require_opencode_hook(build: HookEventBuilder) -> OpenCodeHook:
    hook = build.hook
    assert isinstance(hook, OpenCodeHook)
    return hook


def opencode_event_origin(build: HookEventBuilder, *parts: object) -> str:
    """Return an origin from OpenCode's id of what it reports; from the whole body where there is none."""
    return make_event_origin(
        build.hook.session, *(parts if all(parts) else (build.hook.name, build.hook.fields))
    )


def build_opencode_session_start(build: HookEventBuilder) -> list[DedupedEvent]:
    hook = require_opencode_hook(build)
    model = hook.nested_text("info", "model", "id")
    name = opencode_event_origin(build, "created", hook.nested_text("info", "id"))
    return [
        build.build_hook_event("session_start", reason="startup", model=model, subagent=None, origin=name)
    ]


def build_opencode_session_end(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return the end: OpenCode was left, or the session deleted; it may be taken up again after the former."""
    return [
        build.build_hook_event(
            "session_stop", reason="deleted" if build.hook.name == "session.deleted" else "exit"
        )
    ]


def build_opencode_prompt(build: HookEventBuilder) -> list[DedupedEvent]:
    text = build.hook.text_field("prompt")
    name = opencode_event_origin(build, "message", build.hook.text_field("message_id"))
    return [build.build_hook_message("user", text, "prompt", origin=name)] if text else []


def build_opencode_part(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return a text that the model has finished, or a call's result. Other parts come in other hooks."""
    hook = require_opencode_hook(build)
    if hook.nested_text("part", "type") == "tool":
        return build_opencode_call_result(build)
    text, ended = hook.nested_text("part", "text"), hook.nested_property("part", "time", "end")
    if hook.nested_text("part", "type") != "text" or text is None or not ended:
        return []
    name = opencode_event_origin(build, "part", hook.nested_text("part", "id"))
    return [build.build_hook_message("assistant", text, "properties", origin=name)]


def build_opencode_call_result(build: HookEventBuilder) -> list[DedupedEvent]:
    hook = require_opencode_hook(build)
    call_id, status = hook.nested_text("part", "callID"), hook.nested_text("part", "state", "status")
    if call_id is None or status not in {"completed", "error"}:
        return []
    failed = status == "error"
    code = hook.nested_property("part", "state", "metadata", "exit")
    return [
        build.build_hook_event(
            "post_tool",
            tool_name=hook.nested_text("part", "tool") or "tool",
            tool_input=hooks.wrap_as_object(hook.nested_property("part", "state", "input")),
            tool_output=None if failed else hook.nested_property("part", "state", "output"),
            error=(hook.nested_text("part", "state", "error") or "The call failed.") if failed else None,
            exit_code=code if is_exact_integer(code) else None,
            duration_ms=elapsed_milliseconds(hook.nested_property("part", "state", "time")),
            tool_use_id=call_id,
            origin=call_result_origin(hook.session, call_id),
        )
    ]


def is_exact_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < EXACT_BELOW


def elapsed_milliseconds(times: Any) -> int | None:
    """Return the milliseconds between the start and the end of a part."""
    start, end = (times.get("start"), times.get("end")) if isinstance(times, dict) else (None, None)
    return end - start if is_exact_integer(start) and is_exact_integer(end) and end >= start else None


def build_opencode_usage(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return the tokens of a request to the model, once its message is complete."""
    hook = require_opencode_hook(build)
    if hook.nested_text("info", "role") != "assistant" or not hook.nested_property(
        "info", "time", "completed"
    ):
        return []

    def token_count(*path: str) -> int | None:
        value = hook.nested_property("info", "tokens", *path)
        return value if is_exact_integer(value) and value >= 0 else None

    written, thought = token_count("output"), token_count("reasoning")
    return [
        build.build_hook_event(
            MODEL_REQUEST,
            model=hook.nested_text("info", "modelID"),
            input_tokens=token_count("input"),
            output_tokens=written if written is None else written + (thought or 0),
            cache_read_tokens=token_count("cache", "read"),
            cache_write_tokens=token_count("cache", "write"),
            duration_ms=elapsed_milliseconds(
                {
                    "start": hook.nested_property("info", "time", "created"),
                    "end": hook.nested_property("info", "time", "completed"),
                }
            ),
            origin=opencode_event_origin(build, "model", hook.nested_text("info", "id")),
        )
    ]


def build_opencode_error(build: HookEventBuilder) -> list[DedupedEvent]:
    hook = require_opencode_hook(build)
    error_text = (
        hook.nested_text("error", "data", "message") or hook.nested_text("error", "name") or "An error."
    )
    return [
        build.build_hook_event(
            "api_error",
            error=error_text,
            origin=opencode_event_origin(build, "event", hook.text_field("event_id")),
        )
    ]


def build_opencode_turn_end(build: HookEventBuilder) -> list[DedupedEvent]:
    return [
        build.build_hook_event(
            TURN_END, origin=opencode_event_origin(build, "event", build.hook.text_field("event_id"))
        )
    ]


def build_opencode_permission_request(build: HookEventBuilder) -> list[DedupedEvent]:
    hook, name = build.hook, opencode_event_origin(build, "event", build.hook.text_field("event_id"))
    request_input = hooks.wrap_as_object(hook.tool_input)
    uses = ["tool_name", "tool_input"]
    return [
        build.build_hook_event(
            hooks.ASKED, uses=uses, tool_name=hook.tool_name, tool_input=request_input, origin=name
        )
    ]


_MEANINGS: dict[str, Meaning] = {
    "session.created": build_opencode_session_start,
    "session.deleted": build_opencode_session_end,
    "dispose": build_opencode_session_end,
    "session.idle": build_opencode_turn_end,
    "session.error": build_opencode_error,
    "chat.message": build_opencode_prompt,
    "message.updated": build_opencode_usage,
    "message.part.updated": build_opencode_part,
    BEFORE: hooks.build_call_start_events,
    ASKED: build_opencode_permission_request,
}


# --- questions and answers --------------------------------------------------------------------------------


def add_opencode_call_details(hook: AgentHook, call: ToolCallRequest) -> ToolCallRequest:
    shows_command = (
        SUBJECTS.get(hook.tool_name, "command") == "command"
    )  # a card shows a command in full by itself
    return replace(call, target=None if shows_command else call.about, details={"cwd": hook.working_folder})


def build_opencode_reply(
    name: str, decision: str, words: str, added: Mapping[str, Any], *, cannot_ask: str
) -> AgentReply | None:
    if decision == ASK and name == ASKED:
        return None
    if decision in {ASK, DENY}:
        reply_reason = f"{words} {cannot_ask}" if decision == ASK else words
        return AgentReply({"decision": DENY, "reason": reply_reason}, reply_reason)
    answer: Answer = {"decision": decision}
    if name == BEFORE and "updated_input" in added:
        answer["args"] = added["updated_input"]
    return AgentReply(answer)


def add_opencode_note(_hook: AgentHook, answer: Answer, text: str) -> Answer:
    return answer | {"note": text}


def can_plugin_take_notes(hook: AgentHook) -> bool:
    """Say whether the plugin that posted this knows what to do with a note: older ones do not."""
    return hook.fields.get("takes_notes") is True


def make_opencode_dialect(name: str, title: str) -> Dialect:
    """Return the dialect of OpenCode, or of a fork of it that loads the same plugin."""
    return Dialect(
        name=name,
        can_ask=False,
        calls=CALLS,
        prompts=frozenset({ASKED}),
        edits=frozenset({BEFORE}),
        beginnings=frozenset({"session.created", "chat.message"}),
        turn_ends=frozenset({"session.idle", "dispose", "chat.message"}),
        read=read_opencode_hook,
        events_of=partial(build_opencode_events, source=name),
        subject=opencode_call_subject,
        call_in=guess_opencode_call_hook,
        say=partial(build_opencode_reply, cannot_ask=hooks.cannot_ask_message(title)),
        complete=add_opencode_call_details,
        tools=tuple(SUBJECTS),
        mcp_name="{server}_{tool}",
        notes=frozenset({BEFORE}),
        knows_notes=can_plugin_take_notes,
        add_note=add_opencode_note,
    )


DIALECT = make_opencode_dialect(SOURCE, "OpenCode")
