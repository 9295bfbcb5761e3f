"""Qwen Code's chats (`~/.qwen/projects/PROJECT/chats/SESSION.jsonl`) as events, with those of its sub-agents.

Recorded with version 0.24.4 (`@qwen-code/qwen-code`): messages of a person and of the agent, its calls, their results
and tokens, and the telemetry that tells to which prompt they belong. Sub-agents' are in files of their own
(`subagents/SESSION/agent-ID.jsonl`). Only read, in that version's own code: thoughts. A tool that is called through
another one (`tool_call`) is told by its own name, as hooks tell it.
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
    as_object,
    call_text,
    decoded,
    in_words,
    origin,
    said,
    told_then,
)
from coordinator.dialects.qwen_code import SOURCE
from coordinator.dialects.transcript_formats import Record, TranscriptFormat, count_of, text_in
from coordinator.errors import Invalid
from coordinator.importing.lines import BROKEN, ImportedEvent, ImportedLine, NotUnderstood
from coordinator.importing.transcripts import Transcript
from coordinator.lib import instants

DEFERRED = "tool_call"
PERSON = "real_user"


@dataclass(slots=True)
class Reader:
    """Reads one file's lines in order."""

    session: str
    turn: str | None = None
    begun: dict[str, tuple[str, dict[str, Any] | None]] = field(default_factory=dict)

    def read(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events; none for what Qwen Code keeps for itself. Raises NotUnderstood."""
        try:
            fields = decoded(body)
        except Invalid:
            raise NotUnderstood(BROKEN) from None
        kind, name = text_in(fields, "type"), text_in(fields, "uuid")
        if kind not in _MEANINGS or name is None:
            raise NotUnderstood(f"type {kind:.60}" if kind else "no type")
        self.session = text_in(fields, "sessionId") or self.session
        moment = instants.parse(text_in(fields, "timestamp") or "")
        subagent = text_in(fields, "agentId")
        record = Record(
            self.session,
            origin(self.session, "chat", subagent, name),
            instants.canonical(moment) if moment else "",
            turn=self.turn if subagent is None else None,
            subagent=subagent,
            model=text_in(fields, "model"),
        )
        facts = {name: text for name in ("cwd", "version") if (text := text_in(fields, name))}
        events = list(_MEANINGS[kind](self, fields, record))
        return [record.line(events, facts)] if events else []

    def rest(self, _now: datetime) -> list[ImportedLine]:
        """Return nothing: each line says all by itself."""
        return []

    def read_prompt(self, fields: dict[str, Any], record: Record) -> Iterator[ImportedEvent]:
        """Yield what a person typed; what a sub-agent is told stands in the call that starts it."""
        text = "\n\n".join(text for text, _ in _texts(fields))
        if text and record.subagent is None and fields.get("provenance", PERSON) == PERSON:
            yield record.message("user", [said(text)], "content")

    def read_answer(self, fields: dict[str, Any], record: Record) -> Iterator[ImportedEvent]:
        """Yield what the agent thought, said, called and took."""
        for number, (text, is_thought) in enumerate(_texts(fields)):
            name = f"part {number}"
            yield record.thought(text, name) if is_thought else record.words(text, name)
        for part in _parts(fields):
            call = part.get("functionCall")
            call_id = text_in(call, "id")
            if isinstance(call, dict) and call_id is not None:
                tool, given = _called(call)
                self.begun[call_id] = tool, given
                known = told_then(BEGUN, self.session, call_text(tool, given), record.at)
                yield record.call(_make_call_id(record, call_id), tool, given, known)
        usage = fields.get("usageMetadata")
        if isinstance(usage, dict):
            yield record.usage("tokens", _count_tokens(usage))

    def read_result(self, fields: dict[str, Any], record: Record) -> Iterator[ImportedEvent]:
        """Yield the results of calls."""
        for part in _parts(fields):
            answered = part.get("functionResponse")
            call_id = text_in(answered, "id")
            if not isinstance(answered, dict) or call_id is None or call_id not in self.begun:
                continue
            tool, given = self.begun.pop(call_id)
            known = told_then(ENDED, self.session, call_text(tool, given), record.at)
            yield record.result(_make_call_id(record, call_id), tool, given, known, **_read_outcome(answered))

    def told(self, fields: dict[str, Any], _record: Record) -> Iterator[ImportedEvent]:
        """Note to which prompt what follows belongs."""
        payload = fields.get("systemPayload")
        event = payload.get("uiEvent") if isinstance(payload, dict) else None
        self.turn = text_in(event, "prompt_id") or self.turn
        yield from ()


_MEANINGS = {
    "user": Reader.read_prompt,
    "assistant": Reader.read_answer,
    "tool_result": Reader.read_result,
    "system": Reader.told,
}


def _parts(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    message = fields.get("message")
    parts = message.get("parts") if isinstance(message, dict) else None
    yield from (part for part in (parts if isinstance(parts, list) else []) if isinstance(part, dict))


def _texts(fields: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield each text of a message, and whether it is a thought."""
    for part in _parts(fields):
        if text := text_in(part, "text"):
            yield text, part.get("thought") is True


def _make_call_id(record: Record, call_id: str) -> str:
    """Return a call's id in its session: sub-agents count theirs by themselves."""
    return call_id if record.subagent is None else f"{record.subagent} {call_id}"


def _called(call: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the tool that is called, and its input."""
    tool, given = text_in(call, "name") or "tool", as_object(call.get("args"))
    if tool == DEFERRED and given and (deferred := text_in(given, "name")):
        return deferred, as_object(given.get("arguments"))
    return tool, given


def _count_tokens(usage: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of a request; Qwen Code counts those read from a cache into the input."""
    given, read = count_of(usage.get("promptTokenCount")), count_of(usage.get("cachedContentTokenCount"))
    written, thought = count_of(usage.get("candidatesTokenCount")), count_of(usage.get("thoughtsTokenCount"))
    apart = count_of(usage.get("totalTokenCount")) >= given + written + thought
    return {
        "input_tokens": max(0, given - read),
        "output_tokens": written + (thought if apart else 0),
        "cache_read_tokens": read,
        "cache_write_tokens": 0,
    }


def _read_outcome(answered: dict[str, Any]) -> dict[str, Any]:
    told = answered.get("response")
    if not isinstance(told, dict):
        return {"tool_output": told}
    error = told.get("error")
    return {"error": in_words(error)} if error else {"tool_output": told.get("output", told)}


def _is_one(path: Path) -> bool:
    is_subagents = path.parent.parent.name == "subagents" and path.name.startswith("agent-")
    return path.suffix == ".jsonl" and (path.parent.name == "chats" or is_subagents)


def _make_reader(one: Transcript, _kinds: dict[str, str]) -> Reader:
    return Reader(one.path.parent.name if one.agent else one.path.stem)


FORMAT = TranscriptFormat(
    name=SOURCE, home_in="", home=".qwen", folders=("projects",), is_one=_is_one, reader=_make_reader
)
