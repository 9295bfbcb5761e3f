"""Qwen Code's chats (`~/.qwen/projects/PROJECT/chats/SESSION.jsonl`) as events, with those of its sub-agents.

Recorded with version 0.24.4 (`@qwen-code/qwen-code`): messages of a person and of the agent, its calls, their results
and tokens, and the telemetry that says to which prompt they belong. Sub-agents' are in files of their own
(`subagents/SESSION/agent-ID.jsonl`). Only read, in that version's own code: thoughts. A tool that is called through
another one (`tool_call`) is recorded by its own name, as in hooks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from coordinator.dialects.hooks import (
    BEGUN,
    ENDED,
    build_text_dedup_origins,
    decode_json_for_storage,
    format_call_text,
    format_value_as_text,
    make_event_origin,
    make_text_block,
    wrap_non_object_value,
)
from coordinator.dialects.qwen_code import SOURCE
from coordinator.dialects.transcript_formats import (
    TranscriptFormat,
    TranscriptRecord,
    get_nonblank_text_field,
    nonnegative_integer_or_zero,
)
from coordinator.errors import UnprocessableRequest
from coordinator.importing.lines import BROKEN, ImportedEvent, ImportedLine, UnknownLineKind
from coordinator.importing.transcripts import TranscriptFile
from coordinator.lib import instants

DEFERRED = "tool_call"
PERSON = "real_user"


@dataclass(slots=True)
class QwenTranscriptReader:
    """Reads one file's lines in order."""

    session: str
    turn: str | None = None
    begun: dict[str, tuple[str, dict[str, Any] | None]] = field(default_factory=dict)

    def convert_line_to_events(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events; none for what Qwen Code keeps for itself. Raises UnknownLineKind."""
        try:
            fields = decode_json_for_storage(body)
        except UnprocessableRequest:
            raise UnknownLineKind(BROKEN) from None
        kind, name = get_nonblank_text_field(fields, "type"), get_nonblank_text_field(fields, "uuid")
        if kind not in _MEANINGS or name is None:
            raise UnknownLineKind(f"type {kind:.60}" if kind else "no type")
        self.session = get_nonblank_text_field(fields, "sessionId") or self.session
        moment = instants.parse_instant_or_none(get_nonblank_text_field(fields, "timestamp") or "")
        subagent = get_nonblank_text_field(fields, "agentId")
        record = TranscriptRecord(
            self.session,
            make_event_origin(self.session, "chat", subagent, name),
            instants.format_canonical_instant(moment) if moment else "",
            turn=self.turn if subagent is None else None,
            subagent=subagent,
            model=get_nonblank_text_field(fields, "model"),
        )
        facts = {name: text for name in ("cwd", "version") if (text := get_nonblank_text_field(fields, name))}
        events = list(_MEANINGS[kind](self, fields, record))
        return [record.build_imported_line(events, facts)] if events else []

    def flush_pending_file_lines(self, _now: datetime) -> list[ImportedLine]:
        """Return nothing: each line says all by itself."""
        return []

    def iterate_qwen_prompt_events(
        self, fields: dict[str, Any], record: TranscriptRecord
    ) -> Iterator[ImportedEvent]:
        """Yield what a person typed; a sub-agent's prompt is in the call that starts it."""
        text = "\n\n".join(text for text, _ in iterate_qwen_texts_and_thoughts(fields))
        if text and record.subagent is None and fields.get("provenance", PERSON) == PERSON:
            yield record.build_imported_message("user", [make_text_block(text)], "content")

    def iterate_qwen_answer_events(
        self, fields: dict[str, Any], record: TranscriptRecord
    ) -> Iterator[ImportedEvent]:
        """Yield what the agent thought, said, called and took."""
        for number, (text, is_thought) in enumerate(iterate_qwen_texts_and_thoughts(fields)):
            name = f"part {number}"
            yield (
                record.build_thought_message(text, name)
                if is_thought
                else record.build_assistant_message(text, name)
            )
        for part in iterate_qwen_message_parts(fields):
            call = part.get("functionCall")
            call_id = get_nonblank_text_field(call, "id")
            if isinstance(call, dict) and call_id is not None:
                tool, tool_input = resolve_qwen_tool_and_input(call)
                self.begun[call_id] = tool, tool_input
                begun_origins = build_text_dedup_origins(
                    BEGUN, self.session, format_call_text(tool, tool_input), record.at
                )
                yield record.build_imported_call(
                    qualify_call_id_by_subagent(record, call_id), tool, tool_input, begun_origins
                )
        usage = fields.get("usageMetadata")
        if isinstance(usage, dict):
            yield record.build_imported_model_request("tokens", extract_qwen_token_counts(usage))

    def iterate_qwen_result_events(
        self, fields: dict[str, Any], record: TranscriptRecord
    ) -> Iterator[ImportedEvent]:
        """Yield the results of calls."""
        for part in iterate_qwen_message_parts(fields):
            response_part = part.get("functionResponse")
            call_id = get_nonblank_text_field(response_part, "id")
            if not isinstance(response_part, dict) or call_id is None or call_id not in self.begun:
                continue
            tool, tool_input = self.begun.pop(call_id)
            ended_origins = build_text_dedup_origins(
                ENDED, self.session, format_call_text(tool, tool_input), record.at
            )
            yield record.build_imported_call_result(
                qualify_call_id_by_subagent(record, call_id),
                tool,
                tool_input,
                ended_origins,
                **read_qwen_call_result_columns(response_part),
            )

    def remember_prompt_id(
        self, fields: dict[str, Any], _record: TranscriptRecord
    ) -> Iterator[ImportedEvent]:
        """Note to which prompt what follows belongs."""
        payload = fields.get("systemPayload")
        event = payload.get("uiEvent") if isinstance(payload, dict) else None
        self.turn = get_nonblank_text_field(event, "prompt_id") or self.turn
        yield from ()


_MEANINGS = {
    "user": QwenTranscriptReader.iterate_qwen_prompt_events,
    "assistant": QwenTranscriptReader.iterate_qwen_answer_events,
    "tool_result": QwenTranscriptReader.iterate_qwen_result_events,
    "system": QwenTranscriptReader.remember_prompt_id,
}


def iterate_qwen_message_parts(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    message = fields.get("message")
    parts = message.get("parts") if isinstance(message, dict) else None
    yield from (part for part in (parts if isinstance(parts, list) else []) if isinstance(part, dict))


def iterate_qwen_texts_and_thoughts(fields: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield each text of a message, and whether it is a thought."""
    for part in iterate_qwen_message_parts(fields):
        if text := get_nonblank_text_field(part, "text"):
            yield text, part.get("thought") is True


def qualify_call_id_by_subagent(record: TranscriptRecord, call_id: str) -> str:
    """Return a call's id in its session: sub-agents count theirs by themselves."""
    return call_id if record.subagent is None else f"{record.subagent} {call_id}"


def resolve_qwen_tool_and_input(call: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the tool that is called, and its input."""
    tool, tool_input = (
        get_nonblank_text_field(call, "name") or "tool",
        wrap_non_object_value(call.get("args")),
    )
    if tool == DEFERRED and tool_input and (deferred := get_nonblank_text_field(tool_input, "name")):
        return deferred, wrap_non_object_value(tool_input.get("arguments"))
    return tool, tool_input


def extract_qwen_token_counts(usage: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of a request; Qwen Code counts those read from a cache into the input."""
    input_tokens, read = (
        nonnegative_integer_or_zero(usage.get("promptTokenCount")),
        nonnegative_integer_or_zero(usage.get("cachedContentTokenCount")),
    )
    written, thought = (
        nonnegative_integer_or_zero(usage.get("candidatesTokenCount")),
        nonnegative_integer_or_zero(usage.get("thoughtsTokenCount")),
    )
    apart = nonnegative_integer_or_zero(usage.get("totalTokenCount")) >= input_tokens + written + thought
    return {
        "input_tokens": max(0, input_tokens - read),
        "output_tokens": written + (thought if apart else 0),
        "cache_read_tokens": read,
        "cache_write_tokens": 0,
    }


def read_qwen_call_result_columns(response_part: dict[str, Any]) -> dict[str, Any]:
    response = response_part.get("response")
    if not isinstance(response, dict):
        return {"tool_output": response}
    error = response.get("error")
    return (
        {"error": format_value_as_text(error)} if error else {"tool_output": response.get("output", response)}
    )


def is_qwen_chat_file(path: Path) -> bool:
    is_subagents = path.parent.parent.name == "subagents" and path.name.startswith("agent-")
    return path.suffix == ".jsonl" and (path.parent.name == "chats" or is_subagents)


def make_qwen_reader(file: TranscriptFile, _kinds: dict[str, str]) -> QwenTranscriptReader:
    return QwenTranscriptReader(file.path.parent.name if file.agent else file.path.stem)


FORMAT = TranscriptFormat(
    name=SOURCE,
    home_in="",
    home=".qwen",
    folders=("projects",),
    is_one=is_qwen_chat_file,
    reader=make_qwen_reader,
)
