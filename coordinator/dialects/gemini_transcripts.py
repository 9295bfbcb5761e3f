"""Gemini CLI's chats (`~/.gemini/tmp/PROJECT/chats/session-*.jsonl`) as events.

Recorded with version 0.61.0 (`@google/gemini-cli`): a header, `$set`, messages of a person and of Gemini with
thoughts, tokens and calls. A message is written again whenever something was added to it; each of its parts is yielded
once, as soon as it is whole. Only read, in that version's own code: `$rewindTo`, the `info`, `warning` and `error`
messages, summaries, sub-agents' files (`chats/SESSION/ID.jsonl`, `kind: subagent`), and that older versions wrote one
JSON document a session (`session-*.json`) with the same header and its `messages`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from coordinator.dialects.hooks import (
    BEGUN,
    ENDED,
    TURNS_WORDS,
    build_text_dedup_origins,
    decode_json_for_storage,
    format_call_text,
    format_value_as_text,
    make_event_origin,
    make_text_block,
    wrap_non_object_value,
)
from coordinator.dialects.rewinds import build_rewind_event_input
from coordinator.dialects.transcript_formats import (
    TranscriptFormat,
    TranscriptRecord,
    get_nonblank_text_field,
    nonnegative_integer_or_zero,
)
from coordinator.errors import UnprocessableRequest
from coordinator.importing.lines import BROKEN, ImportedEvent, ImportedLine, UnknownLineKind
from coordinator.importing.transcripts import (
    TranscriptFile,
    TranscriptLine,
    iterate_document_as_single_line,
    iterate_transcript_lines,
)
from coordinator.lib import instants
from coordinator.sessions.reports import REWIND
from coordinator.usage.amounts import UsageDetail

PROGRAM = "gemini"
# Beginnings of texts that Gemini CLI itself sends to the model as a prompt.
NOT_TYPED = ("<session_context>", "<hook_context>", "<state_snapshot>")
OVER = frozenset({"success", "error", "cancelled"})
CANCELLED = "Rejected or interrupted in the terminal."
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


@dataclass(slots=True)
class GeminiTranscriptReader:
    """Reads one chat's lines in order. `parent` is the session whose sub-agent's chat it is."""

    session: str
    parent: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    subagent: str | None = None
    title: str | None = None
    # Messages' parts, which are written again and again.
    reported: set[tuple[str, ...]] = field(default_factory=set)
    words: str = ""  # said since the person typed
    message_times: dict[str, str] = field(default_factory=dict)  # by id, of those that were not taken back

    def convert_line_to_events(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events; none for what Gemini CLI keeps for itself. Raises UnknownLineKind."""
        try:
            fields = decode_json_for_storage(body)
        except UnprocessableRequest:
            raise UnknownLineKind(BROKEN) from None
        if not isinstance(fields, dict):
            raise UnknownLineKind("no object")
        if get_nonblank_text_field(fields, "sessionId") and get_nonblank_text_field(fields, "projectHash"):
            self.remember_chat_header(fields)
            return self.convert_gemini_messages_to_lines(fields.get("messages"))
        if isinstance(changed := fields.get("$set"), dict):
            self.title = get_nonblank_text_field(changed, "summary") or self.title
            return self.convert_gemini_messages_to_lines(changed.get("messages"))
        if "$rewindTo" in fields:
            return self.convert_rewind_line(fields)
        return self.convert_gemini_message_to_lines(fields)

    def convert_rewind_line(self, fields: dict[str, Any]) -> list[ImportedLine]:
        """Return that a person took back a message and all that came after it. The line itself has no time."""
        first = get_nonblank_text_field(fields, "$rewindTo")
        if first is None or first not in self.message_times:
            return []
        last = next(reversed(self.message_times))
        left: list[str] = []  # the newest first
        name = None
        while name != first:
            name, at = self.message_times.popitem()
            left.append(at)
        previous_message_at = next(reversed(self.message_times.values()), "")
        tool_input = build_rewind_event_input(previous_message_at, left[-1], left[0], left[0], len(left))
        if tool_input is None:
            return []
        key = make_event_origin(self.session, REWIND, self.subagent, last, first)
        record = TranscriptRecord(self.session, key, left[0], subagent=self.subagent)
        event = record.build_imported_event(REWIND, REWIND, tool_input=tool_input)
        return [record.build_imported_line([event], self.facts)]

    def flush_pending_file_lines(self, _now: datetime) -> list[ImportedLine]:
        """Return the chat's summary, where it was given one."""
        if not self.title or self.parent:
            return []
        return [ImportedLine(self.session, "", "", {}, [], self.title)]

    def remember_chat_header(self, fields: dict[str, Any]) -> None:
        own = str(fields["sessionId"])
        self.subagent = own if self.parent or fields.get("kind") == "subagent" else None
        self.session = self.parent or own
        self.title = get_nonblank_text_field(fields, "summary") or self.title
        folders = fields.get("directories")
        if isinstance(folders, list) and folders and isinstance(folders[0], str):
            self.facts.setdefault("cwd", folders[0])

    def convert_gemini_messages_to_lines(self, messages: Any) -> list[ImportedLine]:
        """Return the events of all messages of a document. One that is not understood does not hide the others."""
        read_lines: list[ImportedLine] = []
        for message in messages if isinstance(messages, list) else []:
            try:
                read_lines += (
                    self.convert_gemini_message_to_lines(message) if isinstance(message, dict) else []
                )
            except UnknownLineKind:
                continue
        return read_lines

    def convert_gemini_message_to_lines(self, fields: dict[str, Any]) -> list[ImportedLine]:
        kind, name = get_nonblank_text_field(fields, "type"), get_nonblank_text_field(fields, "id")
        meaning = _MEANINGS.get(kind or "")
        if meaning is None or name is None:
            raise UnknownLineKind(f"type {kind:.60}" if kind else "no type")
        record = TranscriptRecord(
            self.session,
            make_event_origin(self.session, "chat", self.subagent, name),
            gemini_timestamp_text(fields, ""),
            subagent=self.subagent,
            model=get_nonblank_text_field(fields, "model"),
        )
        events = list(meaning(self, fields, record, name))
        if kind in {"user", "gemini"}:
            self.message_times[name] = record.at
        if not events:
            return []
        # A later snapshot of the chat has more of a message than an earlier one: each yields what it has.
        parts = "".join(event.event.origin for event in events)
        key = f"{record.key}:{hashlib.sha256(parts.encode()).hexdigest()[:16]}"
        return [ImportedLine(record.session, key, record.at, self.facts, events)]

    def mark_part_reported_if_new(self, *part: str) -> bool:
        if part in self.reported:
            return False
        self.reported.add(part)
        return True

    def iterate_gemini_prompt_events(
        self, fields: dict[str, Any], record: TranscriptRecord, name: str
    ) -> Iterator[ImportedEvent]:
        """Yield what a person typed."""
        blocks = convert_gemini_content(fields.get("content"))
        text = "\n\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
        if (
            blocks
            and not text.lstrip().startswith(NOT_TYPED)
            and self.mark_part_reported_if_new(name, "content")
        ):
            self.words = ""
            yield record.build_imported_message("user", blocks, "content")

    def iterate_gemini_answer_events(
        self, fields: dict[str, Any], record: TranscriptRecord, name: str
    ) -> Iterator[ImportedEvent]:
        """Yield what Gemini thought, said, called and took."""
        thoughts = fields.get("thoughts")
        for number, thought in enumerate(thoughts if isinstance(thoughts, list) else []):
            text = "\n\n".join(
                filter(
                    None,
                    (
                        get_nonblank_text_field(thought, "subject"),
                        get_nonblank_text_field(thought, "description"),
                    ),
                )
            )
            if text and self.mark_part_reported_if_new(name, "thought", str(number)):
                yield record.build_thought_message(text, f"thought {number}")
        answer_text = "\n\n".join(
            str(content_block["text"])
            for content_block in convert_gemini_content(fields.get("content"))
            if content_block.get("type") == "text"
        )
        if answer_text.strip() and self.mark_part_reported_if_new(name, "content"):
            self.words += answer_text
            so_far = build_text_dedup_origins(TURNS_WORDS, self.session, self.words, record.at)
            yield record.build_assistant_message(answer_text, "content", so_far=so_far, is_piece=True)
        calls = fields.get("toolCalls")
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, dict):
                yield from self.iterate_gemini_call_events(call, record, name)
        tokens = fields.get("tokens")
        if isinstance(tokens, dict) and self.mark_part_reported_if_new(name, "tokens"):
            yield record.build_imported_model_request(
                "tokens", extract_gemini_token_counts(tokens), detail=gemini_usage_detail(tokens)
            )

    def iterate_gemini_call_events(
        self, call: dict[str, Any], record: TranscriptRecord, name: str
    ) -> Iterator[ImportedEvent]:
        call_id, tool, call_input = (
            get_nonblank_text_field(call, "id"),
            get_nonblank_text_field(call, "name") or "tool",
            wrap_non_object_value(call.get("args")),
        )
        if call_id is None:
            return
        if self.mark_part_reported_if_new(name, "begins", call_id):
            begun = build_text_dedup_origins(
                BEGUN, self.session, format_call_text(tool, call_input), record.at
            )
            yield record.build_imported_call(call_id, tool, call_input, begun)
        status = get_nonblank_text_field(call, "status")
        if status in OVER and self.mark_part_reported_if_new(name, "ends", call_id):
            at = gemini_timestamp_text(call, record.at)
            ended = build_text_dedup_origins(ENDED, self.session, format_call_text(tool, call_input), at)
            yield record.build_imported_call_result(
                call_id, tool, call_input, ended, at=at, **gemini_call_result_columns(call, status)
            )

    def iterate_gemini_notice_events(
        self, fields: dict[str, Any], record: TranscriptRecord, name: str
    ) -> Iterator[ImportedEvent]:
        """Yield the notices of Gemini CLI itself to its user."""
        text = "\n\n".join(
            str(content_block["text"])
            for content_block in convert_gemini_content(fields.get("content"))
            if content_block.get("type") == "text"
        )
        if not text.strip() or not self.mark_part_reported_if_new(name, "content"):
            return
        if fields.get("type") == "error":
            yield record.build_imported_event("api_error", "content", error=text)
        else:
            yield record.build_imported_message("system", [make_text_block(text)], "content")


_MEANINGS = {
    "user": GeminiTranscriptReader.iterate_gemini_prompt_events,
    "gemini": GeminiTranscriptReader.iterate_gemini_answer_events,
    "info": GeminiTranscriptReader.iterate_gemini_notice_events,
    "warning": GeminiTranscriptReader.iterate_gemini_notice_events,
    "error": GeminiTranscriptReader.iterate_gemini_notice_events,
}


def gemini_timestamp_text(fields: dict[str, Any], otherwise: str) -> str:
    text = get_nonblank_text_field(fields, "timestamp")
    moment = instants.parse_instant_or_none(text) if text else None
    return instants.format_canonical_instant(moment) if moment else text or otherwise


def convert_gemini_content(content: Any) -> list[dict[str, Any]]:
    """Return what was said as blocks of ours; results that went back to the model belong to their calls."""
    content_blocks: list[dict[str, Any]] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str) and part.strip():
            content_blocks.append(make_text_block(part))
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            if part.get("thought") is not True:
                content_blocks.append(make_text_block(part["text"]))
        elif isinstance(part, dict) and not part.keys() & {"functionResponse", "functionCall"}:
            content_blocks.append(part)
    return content_blocks


def extract_gemini_token_counts(record: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of a request; Gemini counts those read from a cache into the input, and thoughts apart."""
    return normalize_gemini_tokens(
        {name: nonnegative_integer_or_zero(record.get(name)) for name in GEMINI_COUNTS}
    )


GEMINI_COUNTS = ("input", "cached", "output", "thoughts", "tool", "total")


def normalize_gemini_tokens(counts: dict[str, int]) -> dict[str, int]:
    """Return a request's tokens by kind. Tools' tokens are added to the input where the total counts them apart."""
    apart = counts["total"] >= counts["input"] + counts["output"] + counts["thoughts"] + counts["tool"]
    return {
        "input_tokens": max(0, counts["input"] - counts["cached"]) + (counts["tool"] if apart else 0),
        "output_tokens": counts["output"] + counts["thoughts"],
        "cache_read_tokens": counts["cached"],
        "cache_write_tokens": 0,
    }


def gemini_usage_detail(record: dict[str, Any]) -> UsageDetail:
    """Return the details of a request's tokens in addition to their kinds. Those of tools are part of the input."""
    return UsageDetail(
        provider="google",
        reasoning_tokens=nonnegative_integer_or_zero(record.get("thoughts")),
        tool_tokens=nonnegative_integer_or_zero(record.get("tool")),
    )


def gemini_call_result_columns(call: dict[str, Any], status: str) -> dict[str, Any]:
    """Return a call's result as in its hook: what the model received, and what the person saw."""
    response_fields, error = extract_gemini_output_and_error(call.get("result"))
    result_display = call.get("resultDisplay")
    if status == "cancelled":
        return {"error": f"{CANCELLED} {error or format_value_as_text(response_fields)}".strip()}
    if status == "error":
        return {
            "error": error
            or (result_display if isinstance(result_display, str) else None)
            or "The call failed."
        }
    return {
        "tool_output": {"llmContent": response_fields, "returnDisplay": result_display}
        if result_display is not None
        else response_fields
    }


def extract_gemini_output_and_error(result: Any) -> tuple[Any, str | None]:
    """Return the output and the error that went back to the model."""
    for part in result if isinstance(result, list) else []:
        function_response = part.get("functionResponse") if isinstance(part, dict) else None
        response = function_response.get("response") if isinstance(function_response, dict) else None
        if isinstance(response, dict):
            error = response.get("error")
            return response.get("output", response), format_value_as_text(error) if error else None
    return result, None


def make_gemini_reader(file: TranscriptFile, _kinds: dict[str, str]) -> GeminiTranscriptReader:
    above = file.path.parent
    parent = above.name if above.parent.name == "chats" and _ID.search(above.name) else None
    folder = file.read_text_from_grandparent_folder("../.project_root" if parent else ".project_root")
    match = _ID.search(file.path.stem)
    return GeminiTranscriptReader(
        match.group() if match else file.path.stem, parent, {"cwd": folder} if folder else {}
    )


def is_gemini_chat_file(path: Path) -> bool:
    if path.suffix == ".jsonl":
        return path.name.startswith("session-") or path.parent.parent.name == "chats"
    return path.suffix == ".json" and path.name.startswith("session-")


def iterate_gemini_chat_lines(file: TranscriptFile) -> Iterator[TranscriptLine]:
    return (
        iterate_document_as_single_line(file)
        if file.path.suffix == ".json"
        else iterate_transcript_lines(file)
    )


FORMAT = TranscriptFormat(
    name=PROGRAM,
    home_in="GEMINI_CLI_HOME",
    home="",
    folders=(".gemini/tmp",),
    is_one=is_gemini_chat_file,
    reader=make_gemini_reader,
    lines=iterate_gemini_chat_lines,
)
