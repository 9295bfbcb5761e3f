"""Gemini CLI's chats (`~/.gemini/tmp/PROJECT/chats/session-*.jsonl`) as events.

Recorded with version 0.61.0 (`@google/gemini-cli`): a header, `$set`, messages of a person and of Gemini with
thoughts, tokens and calls. A message is written again whenever something was added to it; each of its parts is told
once here, as soon as it is whole. Only read, in that version's own code: `$rewindTo`, the `info`, `warning` and `error`
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
from coordinator.importing.transcripts import Line, Transcript, lines_of, whole_of
from coordinator.lib import instants

PROGRAM = "gemini"
# What Gemini CLI tells the model of itself, in a person's place.
NOT_TYPED = ("<session_context>", "<hook_context>", "<state_snapshot>")
OVER = frozenset({"success", "error", "cancelled"})
CANCELLED = "Rejected or interrupted in the terminal."
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


@dataclass(slots=True)
class Reader:
    """Reads one chat's lines in order. `parent` is the session whose sub-agent's chat it is."""

    session: str
    parent: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    subagent: str | None = None
    title: str | None = None
    # Messages' parts, which are written again and again.
    told: set[tuple[str, ...]] = field(default_factory=set)
    words: str = ""  # said since the person typed

    def read(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events; none for what Gemini CLI keeps for itself. Raises NotUnderstood."""
        try:
            fields = decoded(body)
        except Invalid:
            raise NotUnderstood(BROKEN) from None
        if not isinstance(fields, dict):
            raise NotUnderstood("no object")
        if text_in(fields, "sessionId") and text_in(fields, "projectHash"):
            self._note_header(fields)
            return self._all(fields.get("messages"))
        if isinstance(changed := fields.get("$set"), dict):
            self.title = text_in(changed, "summary") or self.title
            return self._all(changed.get("messages"))
        if "$rewindTo" in fields:
            return []
        return self._one(fields)

    def rest(self, _now: datetime) -> list[ImportedLine]:
        """Return the chat's summary, where it was given one."""
        if not self.title or self.parent:
            return []
        return [ImportedLine(self.session, "", "", {}, [], self.title)]

    def _note_header(self, fields: dict[str, Any]) -> None:
        own = str(fields["sessionId"])
        self.subagent = own if self.parent or fields.get("kind") == "subagent" else None
        self.session = self.parent or own
        self.title = text_in(fields, "summary") or self.title
        folders = fields.get("directories")
        if isinstance(folders, list) and folders and isinstance(folders[0], str):
            self.facts.setdefault("cwd", folders[0])

    def _all(self, messages: Any) -> list[ImportedLine]:
        """Return the events of all messages of a document. One that is not understood does not hide the others."""
        found: list[ImportedLine] = []
        for one in messages if isinstance(messages, list) else []:
            try:
                found += self._one(one) if isinstance(one, dict) else []
            except NotUnderstood:
                continue
        return found

    def _one(self, fields: dict[str, Any]) -> list[ImportedLine]:
        kind, name = text_in(fields, "type"), text_in(fields, "id")
        meaning = _MEANINGS.get(kind or "")
        if meaning is None or name is None:
            raise NotUnderstood(f"type {kind:.60}" if kind else "no type")
        record = Record(
            self.session,
            origin(self.session, "chat", self.subagent, name),
            _time(fields, ""),
            subagent=self.subagent,
            model=text_in(fields, "model"),
        )
        events = list(meaning(self, fields, record, name))
        if not events:
            return []
        line = record.line(events, self.facts)
        if self._is_new(name, "message"):
            return [line]
        parts = "".join(one.event.origin for one in events)  # the message told something before
        key = f"{record.key}:{hashlib.sha256(parts.encode()).hexdigest()[:16]}"
        return [ImportedLine(line.session, key, line.at, line.facts, events)]

    def _is_new(self, *part: str) -> bool:
        if part in self.told:
            return False
        self.told.add(part)
        return True

    def user(self, fields: dict[str, Any], record: Record, name: str) -> Iterator[ImportedEvent]:
        """Yield what a person typed."""
        blocks = _blocks(fields.get("content"))
        text = "\n\n".join(str(one["text"]) for one in blocks if one.get("type") == "text")
        if blocks and not text.lstrip().startswith(NOT_TYPED) and self._is_new(name, "content"):
            self.words = ""
            yield record.message("user", blocks, "content")

    def answer(self, fields: dict[str, Any], record: Record, name: str) -> Iterator[ImportedEvent]:
        """Yield what Gemini thought, said, called and took."""
        thoughts = fields.get("thoughts")
        for number, thought in enumerate(thoughts if isinstance(thoughts, list) else []):
            text = "\n\n".join(filter(None, (text_in(thought, "subject"), text_in(thought, "description"))))
            if text and self._is_new(name, "thought", str(number)):
                yield record.thought(text, f"thought {number}")
        words = "\n\n".join(
            str(one["text"]) for one in _blocks(fields.get("content")) if one.get("type") == "text"
        )
        if words.strip() and self._is_new(name, "content"):
            self.words += words
            so_far = told_then(TURNS_WORDS, self.session, self.words, record.at)
            yield record.words(words, "content", so_far=so_far, is_piece=True)
        calls = fields.get("toolCalls")
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, dict):
                yield from self._call(call, record, name)
        tokens = fields.get("tokens")
        if isinstance(tokens, dict) and self._is_new(name, "tokens"):
            yield record.usage("tokens", _tokens(tokens))

    def _call(self, call: dict[str, Any], record: Record, name: str) -> Iterator[ImportedEvent]:
        call_id, tool, given = (
            text_in(call, "id"),
            text_in(call, "name") or "tool",
            as_object(call.get("args")),
        )
        if call_id is None:
            return
        if self._is_new(name, "begins", call_id):
            begun = told_then(BEGUN, self.session, call_text(tool, given), record.at)
            yield record.call(call_id, tool, given, begun)
        status = text_in(call, "status")
        if status in OVER and self._is_new(name, "ends", call_id):
            at = _time(call, record.at)
            ended = told_then(ENDED, self.session, call_text(tool, given), at)
            yield record.result(call_id, tool, given, ended, at=at, **_outcome(call, status))

    def notice(self, fields: dict[str, Any], record: Record, name: str) -> Iterator[ImportedEvent]:
        """Yield what Gemini CLI itself told its user."""
        text = "\n\n".join(
            str(one["text"]) for one in _blocks(fields.get("content")) if one.get("type") == "text"
        )
        if not text.strip() or not self._is_new(name, "content"):
            return
        if fields.get("type") == "error":
            yield record.event("api_error", "content", error=text)
        else:
            yield record.message("system", [said(text)], "content")


_MEANINGS = {
    "user": Reader.user,
    "gemini": Reader.answer,
    "info": Reader.notice,
    "warning": Reader.notice,
    "error": Reader.notice,
}


def _time(fields: dict[str, Any], otherwise: str) -> str:
    text = text_in(fields, "timestamp")
    moment = instants.parse(text) if text else None
    return instants.canonical(moment) if moment else text or otherwise


def _blocks(content: Any) -> list[dict[str, Any]]:
    """Return what was said as blocks of ours; results that went back to the model belong to their calls."""
    found: list[dict[str, Any]] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str) and part.strip():
            found.append(said(part))
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            if part.get("thought") is not True:
                found.append(said(part["text"]))
        elif isinstance(part, dict) and not part.keys() & {"functionResponse", "functionCall"}:
            found.append(part)
    return found


def _tokens(told: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of a request; Gemini counts those read from a cache into the input, and thoughts apart."""
    read = count_of(told.get("cached"))
    return {
        "input_tokens": max(0, count_of(told.get("input")) - read),
        "output_tokens": count_of(told.get("output")) + count_of(told.get("thoughts")),
        "cache_read_tokens": read,
        "cache_write_tokens": 0,
    }


def _outcome(call: dict[str, Any], status: str) -> dict[str, Any]:
    """Return a call's result as in its hook: what the model was told, and what the person saw."""
    told, error = _response(call.get("result"))
    shown = call.get("resultDisplay")
    if status == "cancelled":
        return {"error": f"{CANCELLED} {error or in_words(told)}".strip()}
    if status == "error":
        return {"error": error or (shown if isinstance(shown, str) else None) or "The call failed."}
    return {"tool_output": {"llmContent": told, "returnDisplay": shown} if shown is not None else told}


def _response(result: Any) -> tuple[Any, str | None]:
    """Return the output and the error that went back to the model."""
    for part in result if isinstance(result, list) else []:
        answered = part.get("functionResponse") if isinstance(part, dict) else None
        told = answered.get("response") if isinstance(answered, dict) else None
        if isinstance(told, dict):
            error = told.get("error")
            return told.get("output", told), in_words(error) if error else None
    return result, None


def _reader(one: Transcript, _kinds: dict[str, str]) -> Reader:
    above = one.path.parent
    parent = above.name if above.parent.name == "chats" and _ID.search(above.name) else None
    folder = one.beside("../.project_root" if parent else ".project_root")
    named = _ID.search(one.path.stem)
    return Reader(named.group() if named else one.path.stem, parent, {"cwd": folder} if folder else {})


def _is_one(path: Path) -> bool:
    if path.suffix == ".jsonl":
        return path.name.startswith("session-") or path.parent.parent.name == "chats"
    return path.suffix == ".json" and path.name.startswith("session-")


def _lines(one: Transcript) -> Iterator[Line]:
    return whole_of(one) if one.path.suffix == ".json" else lines_of(one)


FORMAT = TranscriptFormat(
    name=PROGRAM,
    home_in="GEMINI_CLI_HOME",
    home="",
    folders=(".gemini/tmp",),
    is_one=_is_one,
    reader=_reader,
    lines=_lines,
)
