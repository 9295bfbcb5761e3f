"""GitHub Copilot CLI's sessions (`~/.copilot/session-state/SESSION/events.jsonl`) as events.

Recorded with version 1.0.102 (`@github/copilot`): the session's start, messages of a person and of the agent, calls,
tokens of each request, sub-agents (their events stand in the same file, with an `agentId`). Only read, in the schema
that it brings along: reasoning, errors, compaction. Its hooks name tools as Claude Code does; so they are named here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from coordinator.dialects.copilot import HOOK_TOOLS, SOURCE, outcome_of
from coordinator.dialects.hooks import (
    BEGUN,
    ENDED,
    as_object,
    call_text,
    decoded,
    in_words,
    origin,
    said,
    told_then,
)
from coordinator.dialects.transcript_formats import Record, TranscriptFormat, count_of, text_in
from coordinator.errors import Invalid
from coordinator.importing.lines import BROKEN, ImportedEvent, ImportedLine, NotUnderstood
from coordinator.importing.transcripts import Transcript
from coordinator.lib import instants

# What it keeps for itself, or says elsewhere, too.
_KEPT = re.compile(
    r"(?:session|hook|assistant|tool|subagent|system|permission|model|mcp|user|skill|command|commands|external_tool"
    r"|elicitation|exit_plan_mode|sampling|sandbox|abort|agent|auto_mode_switch|capabilities|human_response"
    r"|pending_messages|workflow|canvas)(?:\.[A-Za-z_.]+)?\Z"
)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


@dataclass(slots=True)
class Reader:
    """Reads one session's lines in order."""

    session: str
    facts: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)  # of sub-agents, by id
    begun: dict[tuple[str | None, str], tuple[str, dict[str, Any] | None]] = field(default_factory=dict)

    def read(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events; none for what Copilot CLI keeps for itself. Raises NotUnderstood."""
        try:
            fields = decoded(body)
        except Invalid:
            raise NotUnderstood(BROKEN) from None
        kind, name = text_in(fields, "type"), text_in(fields, "id")
        told = fields.get("data") if isinstance(fields, dict) else None
        if kind is None or name is None or not isinstance(told, dict):
            raise NotUnderstood(f"type {kind:.60}" if kind else "no type")
        meaning = _MEANINGS.get(kind)
        if meaning is None:
            if _KEPT.match(kind) is None:
                raise NotUnderstood(f"type {kind:.60}")
            return []
        agent = text_in(fields, "agentId")
        moment = instants.parse(text_in(fields, "timestamp") or "")
        record = Record(
            self.session,
            origin(self.session, "event", name),
            instants.canonical(moment) if moment else "",
            subagent=f"{self.kinds[agent]} {agent}" if agent in self.kinds else agent,
            model=text_in(told, "model"),
        )
        events = list(meaning(self, told, record, agent))
        return [record.line(events, self.facts)] if events else []

    def rest(self, _now: datetime) -> list[ImportedLine]:
        """Return nothing: each line says all by itself."""
        return []

    def start(self, told: dict[str, Any], _record: Record, _agent: str | None) -> Iterator[ImportedEvent]:
        """Note where the session runs; its start is no event of ours."""
        self.session = text_in(told, "sessionId") or self.session
        found = {"cwd": text_in(told.get("context"), "cwd"), "version": text_in(told, "copilotVersion")}
        self.facts |= {name: text for name, text in found.items() if text}
        yield from ()

    def note_subagent(
        self, told: dict[str, Any], _record: Record, agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Note the kind of a sub-agent."""
        kind = text_in(told, "agentType") or text_in(told, "agentName")
        if agent and kind:
            self.kinds[agent] = kind
        yield from ()

    def read_prompt(self, told: dict[str, Any], record: Record, agent: str | None) -> Iterator[ImportedEvent]:
        """Yield what a person typed; what a sub-agent is told stands in the call that starts it."""
        text = text_in(told, "content")
        if text and agent is None:
            yield record.message("user", [said(text)], "content")

    def read_answer(
        self, told: dict[str, Any], record: Record, _agent: str | None
    ) -> Iterator[ImportedEvent]:
        """Yield what the agent thought and said; its calls have lines of their own."""
        if thought := text_in(told, "reasoningText"):
            yield record.thought(thought, "reasoning")
        if words := text_in(told, "content"):
            yield record.words(words, "content")

    def call(self, told: dict[str, Any], record: Record, agent: str | None) -> Iterator[ImportedEvent]:
        """Yield a call's beginning."""
        call_id, named = text_in(told, "toolCallId"), text_in(told, "toolName") or "tool"
        if call_id is None:
            return
        tool, given = HOOK_TOOLS.get(named, named), as_object(told.get("arguments"))
        self.begun[agent, call_id] = tool, given
        known = told_then(BEGUN, self.session, call_text(tool, given), record.at)
        yield record.call(_make_call_id(agent, call_id), tool, given, known)

    def read_result(self, told: dict[str, Any], record: Record, agent: str | None) -> Iterator[ImportedEvent]:
        """Yield a call's result."""
        call_id = text_in(told, "toolCallId")
        if call_id is None or (agent, call_id) not in self.begun:
            return
        tool, given = self.begun.pop((agent, call_id))
        known = told_then(ENDED, self.session, call_text(tool, given), record.at)
        yield record.result(_make_call_id(agent, call_id), tool, given, known, **_read_outcome(told))

    def tokens(self, told: dict[str, Any], record: Record, _agent: str | None) -> Iterator[ImportedEvent]:
        """Yield the tokens of a request to the model."""
        usage = told.get("usage")
        if isinstance(usage, dict):
            record = Record(
                record.session, record.key, record.at, subagent=record.subagent, model=text_in(usage, "model")
            )
            yield record.usage("tokens", _count_tokens(usage))

    def error(self, told: dict[str, Any], record: Record, _agent: str | None) -> Iterator[ImportedEvent]:
        """Yield an error of the session, such as of a request to the model."""
        yield record.event("api_error", "error", error=text_in(told, "message") or "An error.")

    def compacted(self, _told: dict[str, Any], record: Record, _agent: str | None) -> Iterator[ImportedEvent]:
        """Yield that the conversation was summarised."""
        yield record.event("compaction", "compaction")


_MEANINGS = {
    "session.start": Reader.start,
    "subagent.started": Reader.note_subagent,
    "user.message": Reader.read_prompt,
    "assistant.message": Reader.read_answer,
    "tool.execution_start": Reader.call,
    "tool.execution_complete": Reader.read_result,
    "session.usage_record": Reader.tokens,
    "session.error": Reader.error,
    "session.compaction_complete": Reader.compacted,
}


def _make_call_id(agent: str | None, call_id: str) -> str:
    """Return a call's id in its session: sub-agents count theirs by themselves."""
    return call_id if agent is None else f"{agent} {call_id}"


def _count_tokens(usage: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of a request; Copilot CLI counts those read from a cache, or written to it, into the input."""
    read, written = count_of(usage.get("cacheReadTokens")), count_of(usage.get("cacheWriteTokens"))
    return {
        "input_tokens": max(0, count_of(usage.get("inputTokens")) - read - written),
        "output_tokens": count_of(usage.get("outputTokens")),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


def _read_outcome(told: dict[str, Any]) -> dict[str, Any]:
    """Return a call's result as in its hook."""
    result, error = told.get("result"), told.get("error")
    text = result.get("content") if isinstance(result, dict) else result
    if told.get("success") is not True:
        words = error.get("message") if isinstance(error, dict) else error
        return {"error": in_words(words) or in_words(text) or "The call failed."}
    return outcome_of(text)


def _is_one(path: Path) -> bool:
    return path.name == "events.jsonl" and path.parent.parent.name == "session-state"


def _make_reader(one: Transcript, _kinds: dict[str, str]) -> Reader:
    return Reader(one.path.parent.name)


FORMAT = TranscriptFormat(
    name=SOURCE,
    home_in="COPILOT_HOME",
    home=".copilot",
    folders=("session-state",),
    is_one=_is_one,
    reader=_make_reader,
)
