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
from coordinator.dialects.contract import Answer, Dialect, Reply
from coordinator.dialects.hooks import Hook, HookEvents, Meaning, origin, result_origin
from coordinator.policy.call_text import text_of_patch
from coordinator.policy.tool_calls import AskedCall
from coordinator.policy.tool_rules import ASK, DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST, TURN_END

SOURCE = "opencode"
BEFORE, ASKED = "tool.execute.before", "permission.asked"
CALLS = frozenset({BEFORE, ASKED})
# What tool calls are about, by tool: the text that a rule's pattern looks at.
SUBJECTS = {
    "bash": "command",
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
class OpenCodeHook(Hook):
    """What the plugin posts: one of its functions, or an event."""

    in_columns: ClassVar[frozenset[str]] = frozenset(
        {"session_id", "hook_event_name", "timestamp", "event_id", "properties", "takes_notes"}
    )

    @property
    def parent(self) -> str | None:
        """The session that started this one: each sub-agent has a session of its own."""
        return self.word("info", "parentID")

    def within(self, *path: str) -> Any:
        """Return the value at this path within the event's properties, or None."""
        value = self.fields.get("properties")
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def word(self, *path: str) -> str | None:
        """Return the text at this path within the event's properties, if it is one."""
        value = self.within(*path)
        return value if isinstance(value, str) and value.strip() else None


def _read_hook(body: bytes, at: str) -> OpenCodeHook:
    hook = hooks.read(body, at, OpenCodeHook)
    return replace(hook, at=hooks.when(hook.fields.get("timestamp"), at))


def _call_in(body: bytes | None) -> str | None:
    return hooks.call_in(body, CALLS, BEFORE)


def _subject(tool: str, tool_input: Any) -> str:
    if isinstance(tool_input, dict) and "patterns" in tool_input and PERMISSIONS.get(tool, "") in tool_input:
        return hooks.about(tool_input, PERMISSIONS[tool])
    if tool == "apply_patch":
        return text_of_patch(tool_input, SUBJECTS[tool])
    return hooks.about(tool_input, SUBJECTS.get(tool))


# --- events -----------------------------------------------------------------------------------------------


def _events_of(hook: Hook, session_id: str, *, source: str) -> list[DedupedEvent]:
    build = HookEvents(hook, session_id, source)
    meaning = _MEANINGS.get(hook.name)
    if meaning is None:
        return [] if hook.name in QUIET else [build.milestone()]
    return meaning(build)


def _of(build: HookEvents) -> OpenCodeHook:
    hook = build.hook
    assert isinstance(hook, OpenCodeHook)
    return hook


def _named(build: HookEvents, *parts: object) -> str:
    """Return an origin from OpenCode's id of what it reports; from the whole body where there is none."""
    return origin(build.hook.session, *(parts if all(parts) else (build.hook.name, build.hook.fields)))


def _session_starts(build: HookEvents) -> list[DedupedEvent]:
    hook = _of(build)
    model = hook.word("info", "model", "id")
    name = _named(build, "created", hook.word("info", "id"))
    return [build.event("session_start", reason="startup", model=model, subagent=None, origin=name)]


def _session_ends(build: HookEvents) -> list[DedupedEvent]:
    """Return the end: OpenCode was left, or the session deleted; it may be taken up again after the former."""
    return [build.event("session_stop", reason="deleted" if build.hook.name == "session.deleted" else "exit")]


def _prompted(build: HookEvents) -> list[DedupedEvent]:
    text = build.hook.text("prompt")
    name = _named(build, "message", build.hook.text("message_id"))
    return [build.message("user", text, "prompt", origin=name)] if text else []


def _part(build: HookEvents) -> list[DedupedEvent]:
    """Return a text that the model has finished, or a call's result. Other parts come in other hooks."""
    hook = _of(build)
    if hook.word("part", "type") == "tool":
        return _result(build)
    text, ended = hook.word("part", "text"), hook.within("part", "time", "end")
    if hook.word("part", "type") != "text" or text is None or not ended:
        return []
    name = _named(build, "part", hook.word("part", "id"))
    return [build.message("assistant", text, "properties", origin=name)]


def _result(build: HookEvents) -> list[DedupedEvent]:
    hook = _of(build)
    call_id, status = hook.word("part", "callID"), hook.word("part", "state", "status")
    if call_id is None or status not in {"completed", "error"}:
        return []
    failed = status == "error"
    code = hook.within("part", "state", "metadata", "exit")
    return [
        build.event(
            "post_tool",
            tool_name=hook.word("part", "tool") or "tool",
            tool_input=hooks.as_object(hook.within("part", "state", "input")),
            tool_output=None if failed else hook.within("part", "state", "output"),
            error=(hook.word("part", "state", "error") or "The call failed.") if failed else None,
            exit_code=code if _is_number(code) else None,
            duration_ms=_between(hook.within("part", "state", "time")),
            tool_use_id=call_id,
            origin=result_origin(hook.session, call_id),
        )
    ]


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < EXACT_BELOW


def _between(times: Any) -> int | None:
    """Return the milliseconds between the start and the end of a part."""
    start, end = (times.get("start"), times.get("end")) if isinstance(times, dict) else (None, None)
    return end - start if _is_number(start) and _is_number(end) and end >= start else None


def _model_request(build: HookEvents) -> list[DedupedEvent]:
    """Return the tokens of a request to the model, once its message is complete."""
    hook = _of(build)
    if hook.word("info", "role") != "assistant" or not hook.within("info", "time", "completed"):
        return []

    def tokens(*path: str) -> int | None:
        value = hook.within("info", "tokens", *path)
        return value if _is_number(value) and value >= 0 else None

    written, thought = tokens("output"), tokens("reasoning")
    return [
        build.event(
            MODEL_REQUEST,
            model=hook.word("info", "modelID"),
            input_tokens=tokens("input"),
            output_tokens=written if written is None else written + (thought or 0),
            cache_read_tokens=tokens("cache", "read"),
            cache_write_tokens=tokens("cache", "write"),
            duration_ms=_between(
                {
                    "start": hook.within("info", "time", "created"),
                    "end": hook.within("info", "time", "completed"),
                }
            ),
            origin=_named(build, "model", hook.word("info", "id")),
        )
    ]


def _error(build: HookEvents) -> list[DedupedEvent]:
    hook = _of(build)
    words = hook.word("error", "data", "message") or hook.word("error", "name") or "An error."
    return [build.event("api_error", error=words, origin=_named(build, "event", hook.text("event_id")))]


def _turn_ends(build: HookEvents) -> list[DedupedEvent]:
    return [build.event(TURN_END, origin=_named(build, "event", build.hook.text("event_id")))]


def _asked(build: HookEvents) -> list[DedupedEvent]:
    hook, name = build.hook, _named(build, "event", build.hook.text("event_id"))
    asked = hooks.as_object(hook.tool_input)
    uses = ["tool_name", "tool_input"]
    return [build.event(hooks.ASKED, uses=uses, tool_name=hook.tool, tool_input=asked, origin=name)]


_MEANINGS: dict[str, Meaning] = {
    "session.created": _session_starts,
    "session.deleted": _session_ends,
    "dispose": _session_ends,
    "session.idle": _turn_ends,
    "session.error": _error,
    "chat.message": _prompted,
    "message.updated": _model_request,
    "message.part.updated": _part,
    BEFORE: hooks.call_starts,
    ASKED: _asked,
}


# --- questions and answers --------------------------------------------------------------------------------


def _complete(hook: Hook, call: AskedCall) -> AskedCall:
    shown = SUBJECTS.get(hook.tool, "command") == "command"  # a card shows a command in full by itself
    return replace(call, target=None if shown else call.about, details={"cwd": hook.folder})


def _make_reply(
    name: str, decision: str, words: str, added: Mapping[str, Any], *, cannot_ask: str
) -> Reply | None:
    if decision == ASK and name == ASKED:
        return None
    if decision in {ASK, DENY}:
        why = f"{words} {cannot_ask}" if decision == ASK else words
        return Reply({"decision": DENY, "reason": why}, why)
    answer: Answer = {"decision": decision}
    if name == BEFORE and "updated_input" in added:
        answer["args"] = added["updated_input"]
    return Reply(answer)


def _add_note(_hook: Hook, answer: Answer, text: str) -> Answer:
    return answer | {"note": text}


def _knows_notes(hook: Hook) -> bool:
    """Say whether the plugin that posted this knows what to do with a note: older ones do not."""
    return hook.fields.get("takes_notes") is True


def dialect_of(name: str, title: str) -> Dialect:
    """Return the dialect of OpenCode, or of a fork of it that loads the same plugin."""
    return Dialect(
        name=name,
        can_ask=False,
        calls=CALLS,
        prompts=frozenset({ASKED}),
        edits=frozenset({BEFORE}),
        beginnings=frozenset({"session.created", "chat.message"}),
        turn_ends=frozenset({"session.idle", "dispose", "chat.message"}),
        read=_read_hook,
        events_of=partial(_events_of, source=name),
        subject=_subject,
        call_in=_call_in,
        say=partial(_make_reply, cannot_ask=hooks.cannot_ask(title)),
        complete=_complete,
        tools=tuple(SUBJECTS),
        mcp_name="{server}_{tool}",
        notes=frozenset({BEFORE}),
        knows_notes=_knows_notes,
        add_note=_add_note,
    )


DIALECT = dialect_of(SOURCE, "OpenCode")
