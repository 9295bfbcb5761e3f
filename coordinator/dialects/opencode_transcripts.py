"""OpenCode's sessions (`~/.local/share/opencode/opencode.db`) as events.

Recorded with version 1.18.33 (`opencode-ai`): sessions, messages of a person and of the agent, and the parts text,
tool, step-start, step-finish, patch. Only read, in what is public of its source: the parts reasoning, file, compaction,
retry, subtask, agent and snapshot, errors of messages, sub-agents' sessions (sessions of their own, as for its
plugins), and that versions before the database kept the same in files (`storage/session`, `/message`, `/part`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from coordinator.dialects.hooks import (
    decode_json_for_storage,
    format_value_as_text,
    make_event_origin,
    make_text_block,
    wrap_non_object_value,
)
from coordinator.dialects.transcript_formats import (
    TranscriptFormat,
    TranscriptRecord,
    get_nonblank_text_field,
    nonnegative_integer_or_zero,
)
from coordinator.errors import UnprocessableRequest
from coordinator.importing import opencode_store
from coordinator.importing.lines import BROKEN, ImportedEvent, ImportedLine, UnknownLineKind
from coordinator.importing.transcripts import TranscriptFile
from coordinator.lib import instants

PROGRAM = "opencode"
UNNAMED = ("New session - ", "Child session - ")


@dataclass(slots=True)
class OpenCodeTranscriptReader:
    """Reads the messages of one store in order, session by session."""

    facts: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)

    def convert_line_to_events(self, body: bytes) -> list[ImportedLine]:
        """Return the events of a message with its parts. Raises UnknownLineKind."""
        fields = parse_transcript_object(body)
        if isinstance(about := fields.get("session"), dict):
            self.remember_opencode_session(about)
            return []
        session, name, contents = (
            get_nonblank_text_field(fields, "session"),
            get_nonblank_text_field(fields, "id"),
            parse_json_column(fields.get("data")),
        )
        role = contents.get("role")
        if session is None or name is None or role not in {"user", "assistant"}:
            raise UnknownLineKind(f"role {role:.60}" if isinstance(role, str) else "no role")
        at = opencode_timestamp_or_empty(contents.get("time"), "created") or format_epoch_milliseconds(
            fields.get("at")
        )
        record = TranscriptRecord(
            session,
            make_event_origin(session, "message", name),
            at,
            turn=get_nonblank_text_field(contents, "parentID") or name,
            model=get_nonblank_text_field(contents, "modelID"),
        )
        listed = fields.get("parts")
        parts = [part for part in listed if isinstance(part, dict)] if isinstance(listed, list) else []
        events = list(
            iterate_opencode_prompt_events(parts, record)
            if role == "user"
            else iterate_opencode_answer_events(contents, parts, record)
        )
        return [record.build_imported_line(events, self.facts)] if events else []

    def flush_pending_file_lines(self, _now: datetime) -> list[ImportedLine]:
        """Return the sessions' titles."""
        return [ImportedLine(session, "", "", {}, [], title) for session, title in self.titles.items()]

    def remember_opencode_session(self, about: dict[str, Any]) -> None:
        session_facts = {
            "cwd": get_nonblank_text_field(about, "directory"),
            "version": get_nonblank_text_field(about, "version"),
        }
        session_facts["parent"] = get_nonblank_text_field(about, "parentID")
        self.facts = {name: fact for name, fact in session_facts.items() if fact}
        session, title = get_nonblank_text_field(about, "id"), get_nonblank_text_field(about, "title")
        if session and title and not title.startswith(UNNAMED):
            self.titles[session] = title


def parse_transcript_object(body: bytes) -> dict[str, Any]:
    try:
        value = decode_json_for_storage(body)
    except UnprocessableRequest:
        raise UnknownLineKind(BROKEN) from None
    if not isinstance(value, dict):
        raise UnknownLineKind("no object")
    return value


def parse_json_column(data: Any) -> dict[str, Any]:
    """Return a column's JSON. Raises UnknownLineKind."""
    return parse_transcript_object(data.encode()) if isinstance(data, str) else {}


def iterate_readable_opencode_parts(parts: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each part that can be read: its id, when it began, and what it says."""
    for part in parts:
        try:
            column_json = parse_json_column(part.get("data"))
        except UnknownLineKind:
            continue
        started_at = opencode_timestamp_or_empty(
            column_json.get("time"), "start"
        ) or format_epoch_milliseconds(part.get("at"))
        yield str(part.get("id")), started_at, column_json


def format_epoch_milliseconds(ms: Any) -> str:
    number = nonnegative_integer_or_zero(int(ms) if isinstance(ms, float) and 0 <= ms < 2**53 else ms)
    try:
        return (
            instants.format_canonical_instant(instants.instant_from_microseconds(number * 1000))
            if number
            else ""
        )
    except (OverflowError, ValueError, OSError):
        return ""


def opencode_timestamp_or_empty(times: Any, name: str) -> str:
    return format_epoch_milliseconds(times.get(name)) if isinstance(times, dict) else ""


def iterate_opencode_prompt_events(
    parts: list[dict[str, Any]], record: TranscriptRecord
) -> Iterator[ImportedEvent]:
    """Yield what a person said; what OpenCode adds for the model (`synthetic`) nobody said."""
    blocks = []
    for _, _, part_fields in iterate_readable_opencode_parts(parts):
        if (
            part_fields.get("type") == "text"
            and part_fields.get("synthetic") is not True
            and get_nonblank_text_field(part_fields, "text")
        ):
            blocks.append(make_text_block(part_fields["text"]))
        elif part_fields.get("type") == "file":
            blocks.append(
                {
                    name: field_value
                    for name, field_value in part_fields.items()
                    if name in {"type", "mime", "filename", "url"}
                }
            )
        elif part_fields.get("type") == "compaction":
            yield record.build_imported_event("compaction", "compaction")
    if blocks:
        yield record.build_imported_message("user", blocks, "prompt")


def iterate_opencode_answer_events(
    message: dict[str, Any], parts: list[dict[str, Any]], record: TranscriptRecord
) -> Iterator[ImportedEvent]:
    """Yield what the agent thought, said, called and took. Words that are being written are left for later."""
    done, steps = bool(opencode_timestamp_or_empty(message.get("time"), "completed")), 0
    for name, at, part in iterate_readable_opencode_parts(parts):
        kind, text = part.get("type"), get_nonblank_text_field(part, "text")
        over = done or bool(opencode_timestamp_or_empty(part.get("time"), "end"))
        if kind == "tool":
            yield from iterate_opencode_call_events(part, at or record.at, record, name)
        elif kind == "step-finish":
            steps += 1
            yield record.build_imported_model_request(
                f"{name} tokens", extract_opencode_token_counts(part.get("tokens"))
            )
        elif kind == "retry":
            yield record.build_imported_event(
                "api_error", name, at=at or None, error=opencode_error_text(part.get("error"))
            )
        elif text and over and kind == "text":
            yield copy_record_at_time(record, at).build_assistant_message(text, name)
        elif text and over and kind == "reasoning":
            yield copy_record_at_time(record, at).build_thought_message(text, name)
        elif kind == "compaction":
            yield record.build_imported_event("compaction", name)
    if done and not steps and isinstance(message.get("tokens"), dict):
        yield record.build_imported_model_request("tokens", extract_opencode_token_counts(message["tokens"]))
    if message.get("error"):
        yield record.build_imported_event("api_error", "error", error=opencode_error_text(message["error"]))


def copy_record_at_time(record: TranscriptRecord, at: str) -> TranscriptRecord:
    return TranscriptRecord(
        record.session, record.key, at or record.at, record.turn, record.subagent, record.model
    )


def iterate_opencode_call_events(
    part: dict[str, Any], at: str, record: TranscriptRecord, name: str
) -> Iterator[ImportedEvent]:
    state = part.get("state")
    state_fields = state if isinstance(state, dict) else {}
    call_id, tool = (
        get_nonblank_text_field(part, "callID") or name,
        get_nonblank_text_field(part, "tool") or "tool",
    )
    call_input, status, times = (
        wrap_non_object_value(state_fields.get("input")),
        state_fields.get("status"),
        state_fields.get("time"),
    )
    begins = opencode_timestamp_or_empty(times, "start") or at
    if status == "pending":
        return
    yield record.build_imported_call(call_id, tool, call_input, at=begins)
    values: dict[str, Any]
    if status == "completed":
        values = {"tool_output": state_fields.get("output")}
    elif status == "error":
        values = {"error": format_value_as_text(state_fields.get("error")) or "The call failed."}
    else:
        return
    took = opencode_part_duration_ms(times)
    yield record.build_imported_call_result(
        call_id,
        tool,
        call_input,
        at=opencode_timestamp_or_empty(times, "end") or begins,
        duration_ms=took,
        **values,
    )


def opencode_part_duration_ms(times: Any) -> int | None:
    if not isinstance(times, dict):
        return None
    start, end = (
        nonnegative_integer_or_zero(times.get("start")),
        nonnegative_integer_or_zero(times.get("end")),
    )
    return end - start if start and end >= start else None


def extract_opencode_token_counts(reported: Any) -> dict[str, int]:
    """Return the tokens of a request. Thoughts are added to the output where the total counts them apart."""
    tokens = reported if isinstance(reported, dict) else {}
    cache = tokens.get("cache") if isinstance(tokens.get("cache"), dict) else {}
    input_tokens, output_tokens, thought = (
        nonnegative_integer_or_zero(tokens.get(name)) for name in ("input", "output", "reasoning")
    )
    read, written = (nonnegative_integer_or_zero((cache or {}).get(name)) for name in ("read", "write"))
    apart = (
        nonnegative_integer_or_zero(tokens.get("total"))
        >= input_tokens + output_tokens + thought + read + written
    )
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens + (thought if apart else 0),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


def opencode_error_text(error: Any) -> str:
    about = error.get("data") if isinstance(error, dict) else None
    return (
        get_nonblank_text_field(about, "message")
        or get_nonblank_text_field(error, "message")
        or format_value_as_text(error)
        or "The request failed."
    )


def make_opencode_reader(_file: TranscriptFile, _kinds: dict[str, str]) -> OpenCodeTranscriptReader:
    return OpenCodeTranscriptReader()


def is_opencode_session_file(path: Path) -> bool:
    if path.suffix == ".json":
        return path.parent.parent.name == "session" and path.parent.parent.parent.name == "storage"
    return path.suffix == ".db" and path.name.startswith("opencode")


FORMAT = TranscriptFormat(
    name=PROGRAM,
    home_in="XDG_DATA_HOME",
    home=".local/share",
    folders=("opencode",),
    is_one=is_opencode_session_file,
    reader=make_opencode_reader,
    lines=opencode_store.iterate_opencode_lines,
)
