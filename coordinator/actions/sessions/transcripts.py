"""Import of transcripts of coding agents into sessions, which leaves existing events unchanged.

Lines come translated (`dialects.transcripts`) and are written in batches, each in one transaction, so that an import
that is interrupted, or repeated, resumes where it was. A session may have been recorded while it ran. Events reported
with an id then (a call, a prompt, a request to the model) are matched by it; those without one, by the same speaker and
text at about the same time.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.sessions import origins, reported_sessions, titles
from coordinator.actions.sessions.events import record_events
from coordinator.actions.usage import limits, recording
from coordinator.identity.actors import Actor
from coordinator.identity.keys import KeyIdentity
from coordinator.importing.lines import SOURCE, ImportedEvent, ImportedLine
from coordinator.lib import instants
from coordinator.models import Event
from coordinator.models.sessions import SessionStatus
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.events import DedupedEvent, RecordedEvent
from coordinator.sessions.reports import MADE_CALL, MODEL_REQUEST, UNRECORDED_PROMPT, SessionLocation

READ_FROM = "transcript"  # the milestone that says of which file, version and branch a session's history is
BATCH_EVENTS, BATCH_BYTES = 500, 4 * 1024 * 1024
# Hooks are stamped when they are received, lines when they are written; clocks of two machines differ.
OVERTAKEN = timedelta(seconds=5) // instants.MICROSECOND
ABOUT_THE_SAME_TIME = timedelta(minutes=5) // instants.MICROSECOND
COMPACTIONS = frozenset({"compaction", "PreCompact", "PostCompact"})
MOST_LISTED = 1_000
NOT_HOOKS = frozenset({"executor", "telemetry", None})


@dataclass
class TranscriptOutcome:
    """Counts of an import: new and known events, sessions, tokens; and what was refused."""

    added: int = 0
    known_count: int = 0
    messages: int = 0
    calls: int = 0
    sessions_made: int = 0
    sessions_added_to: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    refused: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ImportedSession:
    """A session of the import: its id with us, None while nobody needs one, and whether it was here before."""

    session_id: str | None
    before: bool
    added: bool = False


class TranscriptImport:
    """One import. Pass each line to `add_transcript_line`, then close it. Without `write` nothing is changed."""

    def __init__(
        self,
        *,
        now: datetime,
        write: bool,
        profile: str,
        agent_name: str,
        hostname: str | None,
        key: KeyIdentity | None = None,
    ) -> None:
        """Begin an import into sessions that `by` may write into; None: any."""
        self.now, self.write = now, write
        self.profile, self.agent_name, self.hostname, self.by = profile, agent_name, hostname, key
        self.outcome = TranscriptOutcome()
        self._batch: list[tuple[ImportedLine, str]] = []
        self._events = self._bytes = 0
        self._sessions: dict[str, ImportedSession] = {}
        self._live: LiveEvents | None = None
        self._would_write: set[bytes] = set()

    def add_transcript_line(self, lines: Iterable[ImportedLine], location: str, size: int) -> None:
        """Add what a line of `size` bytes reports; `location` names the line where part of it is refused."""
        for line in lines:
            self._batch.append((line, location))
            self._events += len(line.events)
        self._bytes += size
        if self._events >= BATCH_EVENTS or self._bytes >= BATCH_BYTES:
            self.flush()

    def close(
        self, target: str, files: int, *, actor: Actor, not_understood: Mapping[str, int] | None = None
    ) -> TranscriptOutcome:
        """Write what is left and the import's audit row; return what came of it.

        A machine that sends what grows has no row where nothing came of it.
        """
        self.flush()
        outcome = self.outcome
        if self.write and (self.by is None or outcome.added or outcome.refused or not_understood):
            audit.record_audit_entry(
                "TRANSCRIPTS_IMPORTED",
                actor=actor,
                target=target,
                result="success",
                metadata={
                    "files": files,
                    "events_added": outcome.added,
                    "events_known": outcome.known_count,
                    "sessions_made": outcome.sessions_made,
                    "sessions_added_to": outcome.sessions_added_to,
                    "refused": len(outcome.refused),
                    "not_understood": dict(not_understood or {}),
                    "hostname": self.hostname,
                    "profile": self.profile,
                },
                now=self.now,
            )
        return outcome

    def flush(self) -> None:
        """Write what was taken, in one transaction. What is looked up is looked up before it begins."""
        batch, self._batch, self._events, self._bytes = self._batch, [], 0, 0
        if not batch:
            return
        taken_keys = self.find_claimed_event_keys(batch)
        new: list[tuple[ImportedEvent, ImportedLine, str]] = []
        known_events: list[tuple[ImportedEvent, ImportedLine]] = []
        for transcript_line, location in batch:
            fresh = (
                []
                if transcript_line.key in taken_keys
                else [
                    fresh_line
                    for fresh_line in transcript_line.events
                    if not self.consume_match_if_recorded(fresh_line, transcript_line, taken_keys)
                ]
            )
            self.outcome.known_count += len(transcript_line.events) - len(fresh)
            new_ids = {id(imported) for imported in fresh}
            known_events += [
                (fresh_line, transcript_line)
                for fresh_line in transcript_line.events
                if id(fresh_line) not in new_ids and recording.event_reports_tokens(fresh_line.event)
            ]
            taken_keys.add(transcript_line.key)
            for fresh_line in fresh:
                taken_keys.update(fresh_line.event.claims)
                new.append((fresh_line, transcript_line, location))
        if new:
            self.write_new_events(new)
        if known_events and self.write:
            self.update_recorded_request_usage(known_events)
        self.save_titles_of_imported_sessions(
            [transcript_line for transcript_line, _ in batch if transcript_line.title]
        )
        for transcript_line, _ in batch:
            at = instants.parse_instant_or_none(transcript_line.at)
            if transcript_line.limits and at is not None and self.write:
                limits.record_subscription_limit_readings(
                    self.profile, self.hostname or "", transcript_line.limits, reported_at=at, now=self.now
                )

    def update_recorded_request_usage(self, known_events: list[tuple[ImportedEvent, ImportedLine]]) -> None:
        """Compare recorded requests with their lines, whose figures may be newer or more detailed."""
        reports = [
            recording.build_usage_report_of_event(
                known_event.event,
                self.get_or_load_imported_session(known_line.session).session_id or "",
                known_event.also,
            )
            for known_event, known_line in known_events
        ]
        with transaction.atomic():
            recording.raise_recorded_usage_amounts(reports)

    def save_titles_of_imported_sessions(self, named: list[ImportedLine]) -> None:
        """Keep what the agent calls its sessions; one of which nothing came in has no need of a title."""
        titles_by_session = {
            self.get_or_load_imported_session(transcript_line.session).session_id: transcript_line.title
            for transcript_line in named
        }
        if self.write and titles_by_session:
            titles.save_titles_from_agents(
                {
                    session_id: title
                    for session_id, title in titles_by_session.items()
                    if session_id and title
                },
                self.now,
            )

    def find_claimed_event_keys(self, batch: list[tuple[ImportedLine, str]]) -> set[str]:
        wanted_keys = {
            (self.get_or_load_imported_session(transcript_line.session).session_id, key)
            for transcript_line, _ in batch
            for event in transcript_line.events
            for key in (event.event.origin, *event.also)
        }
        claimed_keys = origins.filter_claimed_origins(wanted_keys, self.now)
        return (
            claimed_keys
            if self.write
            else claimed_keys | {key for _, key in wanted_keys if hash_origin_key(key) in self._would_write}
        )

    def consume_match_if_recorded(
        self, event: ImportedEvent, line: ImportedLine, taken_origins: set[str]
    ) -> bool:
        if event.event.origin in taken_origins:
            return True
        live = self.load_live_events(line.session)
        if live is not None and live.is_content_missing(event.event):
            return False
        return any(key in taken_origins for key in event.also) or (
            live is not None and live.try_consume_recorded_event(event)
        )

    def load_live_events(self, executor_id: str) -> LiveEvents | None:
        """Return what was recorded of the session while it ran; kept for one session at a time."""
        session = self.get_or_load_imported_session(executor_id)
        if not session.before or session.session_id is None:
            return None
        if self._live is None or self._live.session_id != session.session_id:
            self._live = LiveEvents(session.session_id)
        return self._live

    def get_or_load_imported_session(self, executor_id: str) -> ImportedSession:
        if executor_id not in self._sessions:
            session_id = reported_sessions.find_session_id_by_executor_id(executor_id, self.by)
            self._sessions[executor_id] = ImportedSession(session_id, session_id is not None)
        return self._sessions[executor_id]

    def write_new_events(self, new: list[tuple[ImportedEvent, ImportedLine, str]]) -> None:
        events: list[tuple[DedupedEvent, str]] = []
        with transaction.atomic():
            for new_event, transcript_line, location in new:
                session = self.get_or_load_imported_session(transcript_line.session)
                if not session.added:
                    session.added = True
                    self.begin_imported_session(session, transcript_line)
                    events.append((build_transcript_read_event(transcript_line, location), location))
                events.append((new_event.event, location))
                if self.write:
                    for event, _ in events[-2:]:
                        event.session_id = event.session_id or str(session.session_id)
            if self.write:
                outcomes = record_events([event for event, _ in events], self.now)
            else:
                outcomes = [RecordedEvent(0)] * len(events)
                self._would_write.update(
                    hash_origin_key(key)
                    for new_event, _, _ in new
                    for key in (new_event.event.origin, *new_event.event.claims)
                )
        for (event, location), outcome in zip(events, outcomes, strict=True):
            self.count_event_outcome(event, outcome, location)

    def begin_imported_session(self, session: ImportedSession, line: ImportedLine) -> None:
        """Note a session that something comes into; make it where it is not here."""
        self.outcome.sessions_added_to += session.before
        self.outcome.sessions_made += not session.before
        if self.write and session.session_id is None:
            parent = line.facts.get("parent")
            where = SessionLocation(
                line.facts.get("cwd"), self.hostname, self.agent_name, self.profile, self.by, parent=parent
            )
            started_at = instants.parse_instant_or_none(line.at) or self.now
            imported_session = reported_sessions.find_or_create_reported_session(
                line.session, where, started_at, SessionStatus.FINISHED
            )
            session.session_id = imported_session.session_id

    def count_event_outcome(self, event: DedupedEvent, outcome: Any, location: str) -> None:
        if not isinstance(outcome, RecordedEvent):
            if len(self.outcome.refused) < MOST_LISTED:
                self.outcome.refused.append(f"{location}: {outcome.detail}")
            return
        if event.event_type == READ_FROM:
            return
        if outcome.event_id is None:
            self.outcome.known_count += 1
            return
        self.outcome.added += 1
        self.outcome.messages += event.event_type == "message"
        self.outcome.calls += event.event_type == "pre_tool"
        self.outcome.input_tokens += event.input_tokens or 0
        self.outcome.output_tokens += event.output_tokens or 0


def hash_origin_key(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=8).digest()


def build_transcript_read_event(line: ImportedLine, location: str) -> DedupedEvent:
    """Return the milestone before the first line that comes into a session; a session has one."""
    return DedupedEvent(
        event_type=READ_FROM,
        session_id="",
        timestamp=line.at,
        tool_input={"file": location.rpartition(":")[0], **line.facts},
        source=SOURCE,
        late=True,
        origin=f"transcript:{hashlib.sha256(line.session.encode()).hexdigest()[:40]}",
    )


@dataclass(slots=True)
class SpokenTurn:
    """An agent's text of a turn, without blanks: when its hook reported it, and the part no transcript has had yet."""

    at_us: int
    left: str


class LiveEvents:
    """Events of a session that did not come from transcripts, by digest with their times. Each is matched once."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._moments: dict[bytes, list[int]] = defaultdict(list)
        self._thin: set[bytes] = set()
        self._unrecorded_prompts: set[str] = set()
        self._spoken_turns: list[SpokenTurn] = []
        for event in iterate_recorded_events(session_id):
            digest = digest_event_row(event)
            if event["prompt_id"] and join_text_blocks(event["content"]).startswith(UNRECORDED_PROMPT):
                self._unrecorded_prompts.add(event["prompt_id"])
            if digest is None:
                continue
            if event["by_hook"] and event["role"] == "assistant":
                self._spoken_turns.append(
                    SpokenTurn(event["at_us"], join_text_without_whitespace(event["content"]))
                )
            if event["is_thin"]:
                self._thin.add(digest)
            else:
                self._moments[digest].append(event["at_us"])
                self._thin.discard(digest)

    def is_content_missing(self, event: DedupedEvent) -> bool:
        """Return whether telemetry reported this event without its content; the transcript then adds it."""
        if event.role == "user" and event.prompt_id in self._unrecorded_prompts:
            return True
        if not self._thin:
            return False
        digest = digest_event_row(convert_event_to_comparable_row(event))
        return digest is not None and digest in self._thin and digest not in self._moments

    def try_consume_recorded_event(self, event: ImportedEvent) -> bool:
        """Return whether the event is recorded already; each recorded event is matched once."""
        if event.event.event_type == MODEL_REQUEST and not event.by_figures:
            return False
        row = convert_event_to_comparable_row(event.event)
        nearest = self.pop_nearest_event_time_us(
            digest_event_row(row), row["at_us"], whenever=bool(row["tool_use_id"])
        )
        if nearest is None and row["tool_use_id"]:  # an executor may have reported the call without its id
            nearest = self.pop_nearest_event_time_us(
                digest_event_row(row | {"tool_use_id": None}), row["at_us"]
            )
        if event.is_piece and nearest is None:
            return self.consume_matching_turn_text(
                join_text_without_whitespace(event.event.content), row["at_us"]
            )
        self._spoken_turns = [turn for turn in self._spoken_turns if turn.at_us != nearest]
        return nearest is not None

    def consume_matching_turn_text(self, piece: str, at_us: int) -> bool:
        """Return whether a turn's text, reported at its end, contains a piece; each part of it is matched once."""
        for turn in self._spoken_turns:
            piece_start = turn.left.find(piece) if turn.at_us > at_us - OVERTAKEN else -1
            if piece_start >= 0:
                turn.left = turn.left[piece_start + len(piece) :]
                return True
        return False

    def pop_nearest_event_time_us(
        self, digest: bytes | None, at_us: int, *, whenever: bool = False
    ) -> int | None:
        """Return the time of the nearest equal event and remove it."""
        moments = self._moments.get(digest) if digest is not None else None
        if not moments:
            return None
        nearest = min(moments, key=lambda at: abs(at - at_us))
        if not whenever and abs(nearest - at_us) > ABOUT_THE_SAME_TIME:
            return None
        moments.remove(nearest)
        return nearest


_COLUMNS = ("event_type", "role", "content", "tool_name", "tool_input")
_FIGURES = ("input_tokens", "output_tokens", "cache_read_tokens")


def iterate_recorded_events(session_id: str) -> Iterator[dict[str, Any]]:
    """Yield what a session's live events hold, one at a time."""
    rows = Event.objects.filter(session_id=session_id).exclude(context__source=SOURCE).order_by("id")
    context = (*_FIGURES, "tool_use_id", "prompt_id", "instant_us", "source")
    names = (*_COLUMNS, *(f"context__{name}" for name in context), "tool_output", "error")
    for values in rows.values_list(*names).iterator(chunk_size=200):
        row = dict(zip((*_COLUMNS, *_FIGURES), values, strict=False))
        call_id, prompt_id, at_us, source, output, error = values[len(_COLUMNS) + len(_FIGURES) :]
        call_id = None if call_id and call_id.startswith(MADE_CALL) else call_id  # its agent knows no such id
        row |= {"tool_use_id": call_id, "prompt_id": prompt_id, "at_us": at_us or 0}
        row["by_hook"] = source not in NOT_HOOKS
        ended = row["event_type"] == "post_tool" and call_id
        row["is_thin"] = bool(source == "telemetry" and ended and output is None and error is None)
        yield row


def convert_event_to_comparable_row(event: DedupedEvent) -> dict[str, Any]:
    """Return the event as it would be stored: what was recorded live is stored without secrets."""
    moment = instants.parse_instant_or_none(event.timestamp)
    row = {name: mask_secrets_in_value(getattr(event, name)) for name in _COLUMNS}
    row |= {name: getattr(event, name) for name in _FIGURES}
    return row | {
        "tool_use_id": event.tool_use_id,
        "at_us": instants.instant_to_microseconds(moment) if moment else 0,
    }


def digest_event_row(row: Mapping[str, Any]) -> bytes | None:
    """Return a digest that is equal for two reports of the same event; None if only one source reports it."""
    kind = row["event_type"]
    if kind == "message":
        text = join_text_blocks(row["content"])
        parts: tuple[Any, ...] = (kind, row["role"], " ".join(text.split())) if text.strip() else ()
    elif kind in {"pre_tool", "post_tool"}:
        parts = (
            (kind, row["tool_use_id"]) if row["tool_use_id"] else (kind, row["tool_name"], row["tool_input"])
        )
    elif kind == MODEL_REQUEST:
        parts = (kind, *(row[name] or 0 for name in _FIGURES))
    else:
        parts = ("compaction",) if kind in COMPACTIONS else ()
    if not parts:
        return None
    packed = json.dumps(parts, sort_keys=True, default=str).encode("utf-8", "replace")
    return hashlib.blake2b(packed, digest_size=16).digest()


def join_text_blocks(content: Any) -> str:
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def join_text_without_whitespace(content: Any) -> str:
    return "".join(join_text_blocks(content).split())
