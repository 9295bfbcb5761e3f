"""OpenCode's sessions (`~/.local/share/opencode/opencode.db`) as events.

Recorded with version 1.18.33 (`opencode-ai`): sessions, messages of a person and of the agent, and the parts text,
tool, step-start, step-finish, patch. Only read, in what is public of its source: the parts reasoning, file, compaction,
retry, subtask, agent and snapshot, errors of messages, sub-agents' sessions (sessions of their own, as its plugins hear
them), and that versions before the database kept the same in files (`storage/session`, `/message`, `/part`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from coordinator.dialects.hooks import as_object, decoded, in_words, origin, said
from coordinator.dialects.transcript_formats import Record, TranscriptFormat, count_of, text_in
from coordinator.errors import Invalid
from coordinator.importing import opencode_store
from coordinator.importing.lines import BROKEN, ImportedEvent, ImportedLine, NotUnderstood
from coordinator.importing.transcripts import Transcript
from coordinator.lib import instants

PROGRAM = "opencode"
UNNAMED = ("New session - ", "Child session - ")


@dataclass(slots=True)
class Reader:
    """Reads the messages of one store in order, session by session."""

    facts: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)

    def read(self, body: bytes) -> list[ImportedLine]:
        """Return the events of a message with its parts. Raises NotUnderstood."""
        fields = _object(body)
        if isinstance(about := fields.get("session"), dict):
            self._note_session(about)
            return []
        session, name, told = text_in(fields, "session"), text_in(fields, "id"), _opened(fields.get("data"))
        role = told.get("role")
        if session is None or name is None or role not in {"user", "assistant"}:
            raise NotUnderstood(f"role {role:.60}" if isinstance(role, str) else "no role")
        at = _time(told.get("time"), "created") or _instant(fields.get("at"))
        record = Record(
            session,
            origin(session, "message", name),
            at,
            turn=text_in(told, "parentID") or name,
            model=text_in(told, "modelID"),
        )
        listed = fields.get("parts")
        parts = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        events = list(_asked(parts, record) if role == "user" else _answered(told, parts, record))
        return [record.line(events, self.facts)] if events else []

    def rest(self, _now: datetime) -> list[ImportedLine]:
        """Return the sessions' titles."""
        return [ImportedLine(session, "", "", {}, [], title) for session, title in self.titles.items()]

    def _note_session(self, about: dict[str, Any]) -> None:
        found = {"cwd": text_in(about, "directory"), "version": text_in(about, "version")}
        found["parent"] = text_in(about, "parentID")
        self.facts = {name: one for name, one in found.items() if one}
        session, title = text_in(about, "id"), text_in(about, "title")
        if session and title and not title.startswith(UNNAMED):
            self.titles[session] = title


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = decoded(body)
    except Invalid:
        raise NotUnderstood(BROKEN) from None
    if not isinstance(value, dict):
        raise NotUnderstood("no object")
    return value


def _opened(data: Any) -> dict[str, Any]:
    """Return a column's JSON. Raises NotUnderstood."""
    return _object(data.encode()) if isinstance(data, str) else {}


def _parts(parts: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each part that can be read: its id, when it began, and what it says."""
    for part in parts:
        try:
            told = _opened(part.get("data"))
        except NotUnderstood:
            continue
        began = _time(told.get("time"), "start") or _instant(part.get("at"))
        yield str(part.get("id")), began, told


def _instant(ms: Any) -> str:
    number = count_of(int(ms) if isinstance(ms, float) and 0 <= ms < 2**53 else ms)
    try:
        return instants.canonical(instants.from_us(number * 1000)) if number else ""
    except (OverflowError, ValueError, OSError):
        return ""


def _time(times: Any, name: str) -> str:
    return _instant(times.get(name)) if isinstance(times, dict) else ""


def _asked(parts: list[dict[str, Any]], record: Record) -> Iterator[ImportedEvent]:
    """Yield what a person said; what OpenCode adds for the model (`synthetic`) nobody said."""
    blocks = []
    for _, _, told in _parts(parts):
        if told.get("type") == "text" and told.get("synthetic") is not True and text_in(told, "text"):
            blocks.append(said(told["text"]))
        elif told.get("type") == "file":
            blocks.append(
                {name: one for name, one in told.items() if name in {"type", "mime", "filename", "url"}}
            )
        elif told.get("type") == "compaction":
            yield record.event("compaction", "compaction")
    if blocks:
        yield record.message("user", blocks, "prompt")


def _answered(told: dict[str, Any], parts: list[dict[str, Any]], record: Record) -> Iterator[ImportedEvent]:
    """Yield what the agent thought, said, called and took. Words that are being written are left for later."""
    done, steps = bool(_time(told.get("time"), "completed")), 0
    for name, at, part in _parts(parts):
        kind, text = part.get("type"), text_in(part, "text")
        over = done or bool(_time(part.get("time"), "end"))
        if kind == "tool":
            yield from _called(part, at or record.at, record, name)
        elif kind == "step-finish":
            steps += 1
            yield record.usage(f"{name} tokens", _tokens(part.get("tokens")))
        elif kind == "retry":
            yield record.event("api_error", name, at=at or None, error=_error(part.get("error")))
        elif text and over and kind == "text":
            yield _at(record, at).words(text, name)
        elif text and over and kind == "reasoning":
            yield _at(record, at).thought(text, name)
        elif kind == "compaction":
            yield record.event("compaction", name)
    if done and not steps and isinstance(told.get("tokens"), dict):
        yield record.usage("tokens", _tokens(told["tokens"]))
    if told.get("error"):
        yield record.event("api_error", "error", error=_error(told["error"]))


def _at(record: Record, at: str) -> Record:
    return Record(record.session, record.key, at or record.at, record.turn, record.subagent, record.model)


def _called(part: dict[str, Any], at: str, record: Record, name: str) -> Iterator[ImportedEvent]:
    state = part.get("state")
    told = state if isinstance(state, dict) else {}
    call_id, tool = text_in(part, "callID") or name, text_in(part, "tool") or "tool"
    given, status, times = as_object(told.get("input")), told.get("status"), told.get("time")
    begins = _time(times, "start") or at
    if status == "pending":
        return
    yield record.call(call_id, tool, given, at=begins)
    values: dict[str, Any]
    if status == "completed":
        values = {"tool_output": told.get("output")}
    elif status == "error":
        values = {"error": in_words(told.get("error")) or "The call failed."}
    else:
        return
    took = _took(times)
    yield record.result(call_id, tool, given, at=_time(times, "end") or begins, duration_ms=took, **values)


def _took(times: Any) -> int | None:
    if not isinstance(times, dict):
        return None
    start, end = count_of(times.get("start")), count_of(times.get("end"))
    return end - start if start and end >= start else None


def _tokens(told: Any) -> dict[str, int]:
    """Return the tokens of a request. Thoughts are counted beside the output where the total says so."""
    tokens = told if isinstance(told, dict) else {}
    cache = tokens.get("cache") if isinstance(tokens.get("cache"), dict) else {}
    given, said_, thought = (count_of(tokens.get(name)) for name in ("input", "output", "reasoning"))
    read, written = (count_of((cache or {}).get(name)) for name in ("read", "write"))
    apart = count_of(tokens.get("total")) >= given + said_ + thought + read + written
    return {
        "input_tokens": given,
        "output_tokens": said_ + (thought if apart else 0),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


def _error(error: Any) -> str:
    about = error.get("data") if isinstance(error, dict) else None
    return text_in(about, "message") or text_in(error, "message") or in_words(error) or "The request failed."


def _reader(_one: Transcript, _kinds: dict[str, str]) -> Reader:
    return Reader()


def _is_one(path: Path) -> bool:
    if path.suffix == ".json":
        return path.parent.parent.name == "session" and path.parent.parent.parent.name == "storage"
    return path.suffix == ".db" and path.name.startswith("opencode")


FORMAT = TranscriptFormat(
    name=PROGRAM,
    home_in="XDG_DATA_HOME",
    home=".local/share",
    folders=("opencode",),
    is_one=_is_one,
    reader=_reader,
    lines=opencode_store.lines_of,
)
