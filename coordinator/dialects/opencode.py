"""OpenCode's dialect: what Signalbox's plugin for it posts, as events, and answers for that plugin.

OpenCode has no hook commands: it loads plugins, whose functions it calls. Ours (static/plugins/opencode.js) posts
what those are handed. Recorded and tried with version 1.18.33 (`opencode-ai`). `tool.execute.before` holds each call,
and cannot make OpenCode ask; `permission.asked` reports that OpenCode asks its own person, `question.asked` that its
agent does, or has a plan. A call's result is in the part of the message that holds it, also where it failed or was
refused. The names of MCP servers' tools (`server_tool`) do not say of which server they are, so rules apply to them
and grants do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

from coordinator.dialects import hooks
from coordinator.dialects.dialect_base import NOT_FITTING, AgentReply, Answer, Dialect
from coordinator.dialects.hooks import (
    AgentHook,
    HookEventBuilder,
    Meaning,
    call_result_origin,
    make_event_origin,
)
from coordinator.policy.requests import questions
from coordinator.policy.requests.tool_calls import Settled, ToolCallRequest
from coordinator.policy.rules.call_text import build_call_text_from_input, build_call_text_from_patch
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST, TURN_END

SOURCE = "opencode"
BEFORE, ASKED, QUESTION = "tool.execute.before", "permission.asked", "question.asked"
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
# Events that the plugin does not post, and those that repeat what others report.
QUIET = frozenset(
    {"session.updated", "session.status", "session.diff", "message.part.delta", "permission.replied"}
)
EXACT_BELOW = 2**53  # whole numbers that a float represents exactly


@dataclass(frozen=True, slots=True)
class OpenCodeHook(AgentHook):
    """What the plugin posts: one of its functions, or an event."""

    in_columns: ClassVar[frozenset[str]] = frozenset(
        {"session_id", "hook_event_name", "timestamp", "event_id", "properties", "takes_notes"}
    )

    @property
    def parent_session_id(self) -> str | None:
        """The session that started this one: each sub-agent has a session of its own."""
        return self.event_text_property_or_none("info", "parentID")

    def event_property_at_path(self, *path: str) -> Any:
        """Return the value at this path within the event's properties, or None."""
        value = self.fields.get("properties")
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def event_text_property_or_none(self, *path: str) -> str | None:
        """Return the text at this path within the event's properties, if it is one."""
        value = self.event_property_at_path(*path)
        return value if isinstance(value, str) and value.strip() else None


# --- events -----------------------------------------------------------------------------------------------


def opencode_hook_of_builder(build: HookEventBuilder) -> OpenCodeHook:
    hook = build.hook
    assert isinstance(hook, OpenCodeHook)
    return hook


def opencode_event_origin(build: HookEventBuilder, *parts: object) -> str:
    """Return an origin from OpenCode's id of what it reports; from the whole body where there is none."""
    return make_event_origin(
        build.hook.session, *(parts if all(parts) else (build.hook.name, build.hook.fields))
    )


def build_opencode_session_start_events(build: HookEventBuilder) -> list[DedupedEvent]:
    hook = opencode_hook_of_builder(build)
    model = hook.event_text_property_or_none("info", "model", "id")
    name = opencode_event_origin(build, "created", hook.event_text_property_or_none("info", "id"))
    return [
        build.build_hook_event("session_start", reason="startup", model=model, subagent=None, origin=name)
    ]


def build_opencode_session_end_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return the end: OpenCode was left, or the session deleted; it may be taken up again after the former."""
    return [
        build.build_hook_event(
            "session_stop", reason="deleted" if build.hook.name == "session.deleted" else "exit"
        )
    ]


def build_opencode_prompt_events(build: HookEventBuilder) -> list[DedupedEvent]:
    text = build.hook.text_field("prompt")
    name = opencode_event_origin(build, "message", build.hook.text_field("message_id"))
    return [build.build_hook_message("user", text, "prompt", origin=name)] if text else []


def build_opencode_part_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return a text that the model has finished, or a call's result. Other parts come in other hooks."""
    hook = opencode_hook_of_builder(build)
    if hook.event_text_property_or_none("part", "type") == "tool":
        return build_opencode_call_result_events(build)
    text, ended = (
        hook.event_text_property_or_none("part", "text"),
        hook.event_property_at_path("part", "time", "end"),
    )
    if hook.event_text_property_or_none("part", "type") != "text" or text is None or not ended:
        return []
    name = opencode_event_origin(build, "part", hook.event_text_property_or_none("part", "id"))
    return [build.build_hook_message("assistant", text, "properties", origin=name)]


def build_opencode_call_result_events(build: HookEventBuilder) -> list[DedupedEvent]:
    hook = opencode_hook_of_builder(build)
    call_id, status = (
        hook.event_text_property_or_none("part", "callID"),
        hook.event_text_property_or_none("part", "state", "status"),
    )
    if call_id is None or status not in {"completed", "error"}:
        return []
    failed = status == "error"
    code = hook.event_property_at_path("part", "state", "metadata", "exit")
    return [
        build.build_hook_event(
            "post_tool",
            tool_name=hook.event_text_property_or_none("part", "tool") or "tool",
            tool_input=hooks.wrap_non_object_value(hook.event_property_at_path("part", "state", "input")),
            tool_output=None if failed else hook.event_property_at_path("part", "state", "output"),
            error=(hook.event_text_property_or_none("part", "state", "error") or "The call failed.")
            if failed
            else None,
            exit_code=code if is_safe_integer(code) else None,
            duration_ms=opencode_part_elapsed_ms(hook.event_property_at_path("part", "state", "time")),
            tool_use_id=call_id,
            origin=call_result_origin(hook.session, call_id),
        )
    ]


def is_safe_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < EXACT_BELOW


def opencode_part_elapsed_ms(times: Any) -> int | None:
    """Return the milliseconds between the start and the end of a part."""
    start, end = (times.get("start"), times.get("end")) if isinstance(times, dict) else (None, None)
    return end - start if is_safe_integer(start) and is_safe_integer(end) and end >= start else None


def build_opencode_usage_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """Return the tokens of a request to the model, once its message is complete."""
    hook = opencode_hook_of_builder(build)
    if hook.event_text_property_or_none("info", "role") != "assistant" or not hook.event_property_at_path(
        "info", "time", "completed"
    ):
        return []

    def token_count(*path: str) -> int | None:
        value = hook.event_property_at_path("info", "tokens", *path)
        return value if is_safe_integer(value) and value >= 0 else None

    written, thought = token_count("output"), token_count("reasoning")
    return [
        build.build_hook_event(
            MODEL_REQUEST,
            model=hook.event_text_property_or_none("info", "modelID"),
            input_tokens=token_count("input"),
            output_tokens=written if written is None else written + (thought or 0),
            cache_read_tokens=token_count("cache", "read"),
            cache_write_tokens=token_count("cache", "write"),
            duration_ms=opencode_part_elapsed_ms(
                {
                    "start": hook.event_property_at_path("info", "time", "created"),
                    "end": hook.event_property_at_path("info", "time", "completed"),
                }
            ),
            origin=opencode_event_origin(build, "model", hook.event_text_property_or_none("info", "id")),
        )
    ]


def build_opencode_error_events(build: HookEventBuilder) -> list[DedupedEvent]:
    hook = opencode_hook_of_builder(build)
    error_text = (
        hook.event_text_property_or_none("error", "data", "message")
        or hook.event_text_property_or_none("error", "name")
        or "An error."
    )
    return [
        build.build_hook_event(
            "api_error",
            error=error_text,
            origin=opencode_event_origin(build, "event", hook.text_field("event_id")),
        )
    ]


def build_opencode_turn_end_events(build: HookEventBuilder) -> list[DedupedEvent]:
    return [
        build.build_hook_event(
            TURN_END, origin=opencode_event_origin(build, "event", build.hook.text_field("event_id"))
        )
    ]


def build_opencode_permission_events(build: HookEventBuilder) -> list[DedupedEvent]:
    hook, name = build.hook, opencode_event_origin(build, "event", build.hook.text_field("event_id"))
    request_input = hooks.wrap_non_object_value(hook.tool_input)
    uses = ["tool_name", "tool_input"]
    return [
        build.build_hook_event(
            hooks.PERMISSION_REQUEST,
            uses=uses,
            tool_name=hook.tool_name,
            tool_input=request_input,
            origin=name,
        )
    ]


_MEANINGS: dict[str, Meaning] = {
    "session.created": build_opencode_session_start_events,
    "session.deleted": build_opencode_session_end_events,
    "dispose": build_opencode_session_end_events,
    "session.idle": build_opencode_turn_end_events,
    "session.error": build_opencode_error_events,
    "chat.message": build_opencode_prompt_events,
    "message.updated": build_opencode_usage_events,
    "message.part.updated": build_opencode_part_events,
    BEFORE: hooks.build_call_start_events,
    ASKED: build_opencode_permission_events,
    QUESTION: build_opencode_permission_events,
}


# --- questions and answers --------------------------------------------------------------------------------


class OpenCodeDialect(Dialect):
    """What the plugin posts of OpenCode, or of a fork of it that loads the same plugin."""

    name = SOURCE
    calls = frozenset({BEFORE, ASKED, QUESTION})
    worst_call = BEFORE
    prompts = frozenset({ASKED, QUESTION})
    edits = frozenset({BEFORE})
    beginnings = frozenset({"session.created", "chat.message"})
    turn_ends = frozenset({"session.idle", "dispose", "chat.message"})
    notes = frozenset({BEFORE})
    hook_type = OpenCodeHook
    time_field = "timestamp"
    meanings = _MEANINGS
    subjects = SUBJECTS
    mcp_name = "{server}_{tool}"
    can_ask = False
    cannot_ask = hooks.build_ask_unsupported_message("OpenCode")

    def build_call_subject_text(self, tool: str, tool_input: Any) -> str:
        """Return what a call is about, or what OpenCode asks a permission for."""
        if (
            isinstance(tool_input, dict)
            and "patterns" in tool_input
            and PERMISSIONS.get(tool, "") in tool_input
        ):
            return build_call_text_from_input(tool_input, PERMISSIONS[tool])
        if tool == "apply_patch":
            return build_call_text_from_patch(tool_input, SUBJECTS[tool])
        return super().build_call_subject_text(tool, tool_input)

    def build_hook_events(self, hook: AgentHook, session_id: str) -> list[DedupedEvent]:
        """Return what the hook means; nothing for one that only repeats, or whose meaning is not complete yet."""
        build = HookEventBuilder(hook, session_id, self.name)
        meaning = self.meanings.get(hook.name)
        if meaning is None:
            return [] if hook.name in QUIET else [build.build_hook_milestone()]
        return meaning(build)

    def build_decision_reply(
        self, name: str, decision: str, reason: str, added: Mapping[str, Any]
    ) -> AgentReply | None:
        """Return the answer for the plugin, which cannot make OpenCode ask."""
        if decision == ASK and name in self.prompts:
            return None
        if decision in {ASK, DENY}:
            reason = self.format_denial_reason(decision, reason)
            return AgentReply({"decision": DENY, "reason": reason}, reason)
        answer: Answer = {"decision": decision}
        if name == BEFORE and "updated_input" in added:
            answer["args"] = added["updated_input"]
        return AgentReply(answer)

    def build_person_verdict_reply(
        self, hook: AgentHook, call: ToolCallRequest, settled: Settled
    ) -> AgentReply | None:
        """Return a person's answer; what they wrote when they declined a question goes to the agent by itself."""
        reply = super().build_person_verdict_reply(hook, call, settled)
        if hook.name != QUESTION or settled["allowed"] or not settled.get("reason") or reply is None:
            return reply
        return AgentReply({**(reply.answer or {}), "feedback": reply.denial}, reply.denial)

    def build_question_answer_reply(
        self, hook: AgentHook, call: ToolCallRequest, settled: Settled
    ) -> AgentReply | None:
        """Return a person's answer: as OpenCode's own prompt gives it, where that is shown already."""
        question = questions.parse_call_question_or_none(call.tool, call.tool_input)
        if hook.name != QUESTION or not isinstance(question, questions.AgentQuestions):
            return super().build_question_answer_reply(hook, call, settled)
        answers = questions.build_answer_lists_or_none(question, settled["answer"].get(questions.ANSWERED))
        if answers is None:
            return self.build_decision_reply(hook.name, DENY, NOT_FITTING, {})
        return AgentReply({"decision": ALLOW, "answers": answers})

    def add_model_note_to_answer(self, _hook: AgentHook, answer: Answer, text: str) -> Answer:
        """Return the answer with a text for the model."""
        return answer | {"note": text}

    def supports_model_notes(self, hook: AgentHook) -> bool:
        """Say whether the plugin that posted this knows what to do with a note: older ones do not."""
        return hook.fields.get("takes_notes") is True


DIALECT = OpenCodeDialect()
