"""GitHub Copilot CLI's sessions (`~/.copilot/session-state/SESSION/events.jsonl`) as events.

Recorded with version 1.0.102 (`@github/copilot`): the session's start, messages of a person and of the agent, calls,
tokens of each request, sub-agents (their events are in the same file, with an `agentId`). Only read, in the schema
that it brings along: reasoning, errors, compaction. Its hooks name tools as Claude Code does; so they are named here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from coordinator.dialects.copilot import HOOK_TOOLS, SOURCE, parse_copilot_result_text
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

# What it keeps for itself, or says elsewhere, too.
_IGNORED_KINDS = re.compile(
    r"(?:session|hook|assistant|tool|subagent|system|permission|model|mcp|user|skill|command|commands|external_tool"
    r"|elicitation|exit_plan_mode|sampling|sandbox|abort|agent|auto_mode_switch|capabilities|human_response"
    r"|pending_messages|workflow|canvas)(?:\.[A-Za-z_.]+)?\Z"
)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


@dataclass(slots=True)
class CopilotTranscriptReader:
    """Reads one session's lines in order."""

    session: str
    facts: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)  # of sub-agents, by id
    begun: dict[tuple[str | None, str], tuple[str, dict[str, Any] | None]] = field(default_factory=dict)

    def convert_line_to_events(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events; none for what Copilot CLI keeps for itself. Raises UnknownLineKind."""
        try:
            fields = decode_json_for_storage(body)
        except UnprocessableRequest:
            raise UnknownLineKind(BROKEN) from None
        kind, name = get_nonblank_text_field(fields, "type"), get_nonblank_text_field(fields, "id")
        data = fields.get("data") if isinstance(fields, dict) else None
        if kind is None or name is None or not isinstance(data, dict):
            raise UnknownLineKind(f"type {kind:.60}" if kind else "no type")
        meaning = _MEANINGS.get(kind)
        if meaning is None:
            if _IGNORED_KINDS.match(kind) is None:
                raise UnknownLineKind(f"type {kind:.60}")
            return []
        agent = get_nonblank_text_field(fields, "agentId")
        moment = instants.parse_instant_or_none(get_nonblank_text_field(fields, "timestamp") or "")
        record = TranscriptRecord(
            self.session,
            make_event_origin(self.session, "event", name),
            instants.format_canonical_instant(moment) if moment else "",
            subagent=f"{self.kinds[agent]} {agent}" if agent in self.kinds else agent,
            model=get_nonblank_text_field(data, "model"),
        )
        events = list(meaning(self, data, record, agent))
        return [record.build_imported_line(events, self.facts)] if events else []

    def flush_pending_file_lines(self, _now: datetime) -> list[ImportedLine]:
        """Return nothing: each line says all by itself."""
        return []

    def apply_copilot_session_start(
        self, record: dict[str, Any], _record: TranscriptRecord, _agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Note where the session runs; its start is no event of ours."""
        self.session = get_nonblank_text_field(record, "sessionId") or self.session
        start_facts = {
            "cwd": get_nonblank_text_field(record.get("context"), "cwd"),
            "version": get_nonblank_text_field(record, "copilotVersion"),
        }
        self.facts |= {name: text for name, text in start_facts.items() if text}
        yield from ()

    def remember_subagent_kind(
        self, record: dict[str, Any], _record: TranscriptRecord, agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Note the kind of a sub-agent."""
        kind = get_nonblank_text_field(record, "agentType") or get_nonblank_text_field(record, "agentName")
        if agent and kind:
            self.kinds[agent] = kind
        yield from ()

    def read_copilot_prompt(
        self, fields: dict[str, Any], record: TranscriptRecord, agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Yield what a person typed; a sub-agent's prompt is in the call that starts it."""
        text = get_nonblank_text_field(fields, "content")
        if text and agent is None:
            yield record.build_imported_message("user", [make_text_block(text)], "content")

    def read_copilot_answer(
        self, fields: dict[str, Any], record: TranscriptRecord, _agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Yield what the agent thought and said; its calls have lines of their own."""
        if thought := get_nonblank_text_field(fields, "reasoningText"):
            yield record.build_thought_message(thought, "reasoning")
        if text := get_nonblank_text_field(fields, "content"):
            yield record.build_assistant_message(text, "content")

    def read_copilot_call(
        self, fields: dict[str, Any], record: TranscriptRecord, agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Yield a call's beginning."""
        call_id, tool_name = (
            get_nonblank_text_field(fields, "toolCallId"),
            get_nonblank_text_field(fields, "toolName") or "tool",
        )
        if call_id is None:
            return
        tool, tool_input = (
            HOOK_TOOLS.get(tool_name, tool_name),
            wrap_non_object_value(fields.get("arguments")),
        )
        self.begun[agent, call_id] = tool, tool_input
        begun_origins = build_text_dedup_origins(
            BEGUN, self.session, format_call_text(tool, tool_input), record.at
        )
        yield record.build_imported_call(
            build_copilot_session_call_id(agent, call_id), tool, tool_input, begun_origins
        )

    def read_copilot_result(
        self, fields: dict[str, Any], record: TranscriptRecord, agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Yield a call's result."""
        call_id = get_nonblank_text_field(fields, "toolCallId")
        if call_id is None or (agent, call_id) not in self.begun:
            return
        tool, tool_input = self.begun.pop((agent, call_id))
        ended_origins = build_text_dedup_origins(
            ENDED, self.session, format_call_text(tool, tool_input), record.at
        )
        yield record.build_imported_call_result(
            build_copilot_session_call_id(agent, call_id),
            tool,
            tool_input,
            ended_origins,
            **read_copilot_call_result_columns(fields),
        )

    def read_copilot_usage(
        self, fields: dict[str, Any], record: TranscriptRecord, _agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Yield the tokens of a request to the model."""
        usage = fields.get("usage")
        if isinstance(usage, dict):
            record = TranscriptRecord(
                record.session,
                record.key,
                record.at,
                subagent=record.subagent,
                model=get_nonblank_text_field(usage, "model"),
            )
            yield record.build_imported_model_request("tokens", copilot_token_counts(usage))

    def read_copilot_error(
        self, fields: dict[str, Any], record: TranscriptRecord, _agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Yield an error of the session, such as of a request to the model."""
        yield record.build_imported_event(
            "api_error", "error", error=get_nonblank_text_field(fields, "message") or "An error."
        )

    def read_copilot_compaction(
        self, _fields: dict[str, Any], record: TranscriptRecord, _agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Yield that the conversation was summarised."""
        yield record.build_imported_event("compaction", "compaction")


_MEANINGS = {
    "session.start": CopilotTranscriptReader.apply_copilot_session_start,
    "subagent.started": CopilotTranscriptReader.remember_subagent_kind,
    "user.message": CopilotTranscriptReader.read_copilot_prompt,
    "assistant.message": CopilotTranscriptReader.read_copilot_answer,
    "tool.execution_start": CopilotTranscriptReader.read_copilot_call,
    "tool.execution_complete": CopilotTranscriptReader.read_copilot_result,
    "session.usage_record": CopilotTranscriptReader.read_copilot_usage,
    "session.error": CopilotTranscriptReader.read_copilot_error,
    "session.compaction_complete": CopilotTranscriptReader.read_copilot_compaction,
}


def build_copilot_session_call_id(agent: str | None, call_id: str) -> str:
    """Return a call's id in its session: sub-agents count theirs by themselves."""
    return call_id if agent is None else f"{agent} {call_id}"


def copilot_token_counts(usage: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of a request; Copilot CLI counts those read from a cache, or written to it, into the input."""
    read, written = (
        nonnegative_integer_or_zero(usage.get("cacheReadTokens")),
        nonnegative_integer_or_zero(usage.get("cacheWriteTokens")),
    )
    return {
        "input_tokens": max(0, nonnegative_integer_or_zero(usage.get("inputTokens")) - read - written),
        "output_tokens": nonnegative_integer_or_zero(usage.get("outputTokens")),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


def read_copilot_call_result_columns(record: dict[str, Any]) -> dict[str, Any]:
    """Return a call's result as in its hook."""
    result, error = record.get("result"), record.get("error")
    text = result.get("content") if isinstance(result, dict) else result
    if record.get("success") is not True:
        message = error.get("message") if isinstance(error, dict) else error
        return {"error": format_value_as_text(message) or format_value_as_text(text) or "The call failed."}
    return parse_copilot_result_text(text)


def is_copilot_session_file(path: Path) -> bool:
    return path.name == "events.jsonl" and path.parent.parent.name == "session-state"


def make_copilot_reader(file: TranscriptFile, _kinds: dict[str, str]) -> CopilotTranscriptReader:
    return CopilotTranscriptReader(file.path.parent.name)


FORMAT = TranscriptFormat(
    name=SOURCE,
    home_in="COPILOT_HOME",
    home=".copilot",
    folders=("session-state",),
    is_one=is_copilot_session_file,
    reader=make_copilot_reader,
)
