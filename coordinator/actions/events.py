"""Events taken in: one transaction for many, each with its context, lifecycle events with what follows from them.

Speed is the point here (thousands a second), so rows go in by one statement a table, not through the ORM:
`INSERT … SELECT` from a JSON array on SQLite, COPY on PostgreSQL. tests/events compares the bytes with the ORM's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec
from django.db import connection, transaction

from coordinator import instants, meters
from coordinator.actions import origins, runs
from coordinator.actions.sessions import note_lifecycle_event
from coordinator.errors import Invalid, NotFound, SignalboxError
from coordinator.secrets.masking import Masker, masker

log = logging.getLogger(__name__)

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# Events that say where a session or run stands; the session's status follows them in the same transaction.
LIFECYCLE = frozenset((*runs.START_EVENTS, *runs.STOP_EVENTS))

EVENT_COLUMNS = (
    "session_id", "event_type", "timestamp", "tool_name", "tool_input", "tool_output",
    "error", "exit_code", "reason", "role", "content",
)  # fmt: skip
CONTEXT_COLUMNS = (
    "session_id", "instant_us", "received_at", "run_id", "tool_use_id", "subagent", "prompt_id", "duration_ms",
    "model", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "source", "extra", "masked",
)  # fmt: skip
TEXTS = (
    "session_id", "event_type", "timestamp", "tool_name", "error", "reason", "role",
    "run_id", "tool_use_id", "subagent", "prompt_id", "model",
)  # fmt: skip


class NewEvent(msgspec.Struct, kw_only=True):
    """An event as a door hands it in: the recorded wire form, and what its context keeps where the door knows it."""

    event_type: str
    session_id: str
    timestamp: str
    tool_name: str | None = None
    tool_input: dict[str, Any] | None = None
    tool_output: Any = None
    error: str | None = None
    exit_code: Int64 | None = None
    reason: str | None = None
    role: str | None = None
    content: list[dict[str, Any]] | None = None
    # An event of type `result`, as later versions of the executors send it; kept in tool_output.
    result_text: str | None = None
    result_data: Any = None
    run_id: str | None = None
    tool_use_id: str | None = None
    subagent: str | None = None
    prompt_id: str | None = None
    duration_ms: Int64 | None = None
    model: str | None = None
    input_tokens: Int64 | None = None
    output_tokens: Int64 | None = None
    cache_read_tokens: Int64 | None = None
    cache_write_tokens: Int64 | None = None
    source: str = "executor"


class ToldEvent(NewEvent, kw_only=True):
    """An event that its teller may tell twice: one with the same `origin` is written once.

    The origin counts within the session, or `everywhere`, and is free again after `origin_for` milliseconds (None:
    never). `claims` are origins that are taken with it in its session, by which others are then left out. `extra`
    is what was said beside all that has a column. One that is told `late` counts as received when it happened, so
    that what is summed up by day stands on its own day.
    """

    origin: str
    origin_for: int | None = None
    claims: tuple[str, ...] = ()
    everywhere: bool = False
    extra: dict[str, Any] | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event that is written: its id in `events`; None for one that said what was written already."""

    event_id: int | None


Outcome = Recorded | SignalboxError
# Both rows of one event as columns' values, JSON already as text.
Row = tuple[list[Any], list[Any]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """An event as the rows to write, or why it cannot be written."""

    item: NewEvent
    rows: Row | Invalid


def record_events(items: Sequence[NewEvent], now: datetime) -> list[Outcome]:
    """Write the events in order, in one transaction, and return each one's id or why it was refused.

    An event of an unknown session (NotFound) or with a text that no database can hold (Invalid) is refused
    alone; the others are written. Database errors are raised, and then nothing is written.
    """
    return write_events(prepare_events(items, now), now)


def prepare_events(items: Iterable[NewEvent], now: datetime) -> list[Prepared]:
    """Do what can be done before the transaction begins: other writers wait while it lasts."""
    return [Prepared(item, _rows(item, now)) for item in items]


def write_events(prepared: Sequence[Prepared], now: datetime) -> list[Outcome]:
    """Write prepared events, as `record_events` says."""
    with transaction.atomic():
        known = lock_sessions({one.item.session_id for one in prepared})
        _lock_to_move({one.item.session_id for one in prepared if one.item.event_type in LIFECYCLE} & known)
        told = origins.told_before(
            [
                one.item
                for one in prepared
                if isinstance(one.item, ToldEvent) and _refused(one, known) is None
            ],
            now,
        )
        outcomes: list[Outcome | None] = []
        waiting: list[tuple[int, Row]] = []
        for place, one in enumerate(prepared):
            refused = _refused(one, known) or (Recorded(None) if id(one.item) in told else None)
            outcomes.append(refused)
            if refused is not None or isinstance(one.rows, Invalid):
                continue
            if one.item.event_type in LIFECYCLE:
                _write(waiting, outcomes)  # what came before is there when the session's fate is decided
                waiting = []
                outcomes[place] = _note(one.item, now)
                if outcomes[place] is not None:
                    continue
            waiting.append((place, one.rows))
        _write(waiting, outcomes)
    return [outcome for outcome in outcomes if outcome is not None]


def _refused(one: Prepared, known: set[str]) -> SignalboxError | None:
    if isinstance(one.rows, Invalid):
        return one.rows
    return None if one.item.session_id in known else NotFound("Session not found")


def _note(item: NewEvent, now: datetime) -> Outcome | None:
    """Let the session follow the event; return the outcome of one that is not to be stored."""
    try:
        with transaction.atomic():
            to_be_stored = note_lifecycle_event(item.session_id, item, now)
    except SignalboxError as refusal:
        return refusal
    return None if to_be_stored else Recorded(None)


def lock_sessions(session_ids: Iterable[str]) -> set[str]:
    """Return those of the sessions that exist, held against deletion until the transaction ends."""
    wanted = sorted(s for s in session_ids if _storable(s))
    found: set[str] = set()
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                "SELECT session_id FROM sessions WHERE session_id IN (SELECT value FROM json_each(%s))",
                [msgspec.json.encode(wanted).decode()],
            )
        else:
            cursor.execute(
                "SELECT session_id FROM sessions WHERE session_id = ANY(%s) ORDER BY session_id FOR KEY SHARE",
                [wanted],
            )
        found.update(row[0] for row in cursor.fetchall())
    return found


# Sessions locked from child to parent, as actions.runs does; a parent's circle, written by others, ends somewhere.
LOCK_TO_MOVE = """
WITH RECURSIVE line (session_id, above, depth) AS (
    SELECT session_id, parent_session_id, 0 FROM sessions WHERE session_id = ANY(%s)
    UNION ALL
    SELECT line.session_id, s.parent_session_id, line.depth + 1
    FROM line JOIN sessions s ON s.session_id = line.above WHERE line.depth < 50
), ranked AS (SELECT session_id, max(depth) AS depth FROM line GROUP BY session_id)
SELECT s.session_id FROM ranked JOIN sessions s USING (session_id)
ORDER BY ranked.depth DESC, s.session_id FOR NO KEY UPDATE OF s
"""


def _lock_to_move(session_ids: set[str]) -> None:
    """Lock, in one order for all writers, the sessions whose status may change: each in its event's turn would
    be another order in every process, and PostgreSQL ends such a deadlock by refusing a whole group."""
    if len(session_ids) > 1 and connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(LOCK_TO_MOVE, [list(session_ids)])


def _storable(text: str) -> bool:
    return "\x00" not in text and (text.isascii() or _has_utf8(text))


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _rows(item: NewEvent, now: datetime) -> Row | Invalid:
    for name in TEXTS:
        text = getattr(item, name)
        if text is not None and not _storable(text):
            return Invalid([_fault(name, text)])
    try:
        mask = masker() or _Plain()
        return _event_row(item, mask), _context_row(item, now, mask)
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError) as problem:
        return Invalid(f"The event cannot be written as JSON: {problem}")


def _fault(name: str, text: str) -> dict[str, Any]:
    shown = text.encode("ascii", "backslashreplace").decode()[:200]
    message = "Text must not hold a NUL character or a lone surrogate"
    return {"type": "value_error", "loc": ["body", name], "msg": message, "input": shown}


class _Plain:
    """What stands in a masker's place where masking is switched off."""

    count = 0

    @staticmethod
    def encoded(value: Any) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    @staticmethod
    def text(text: str | None) -> str | None:
        return text


def _event_row(item: NewEvent, mask: Masker | _Plain) -> list[Any]:
    output = item.tool_output
    if output is None and (item.result_text is not None or item.result_data is not None):
        output = {"result_text": item.result_text, "result_data": item.result_data}
    return [
        item.session_id, item.event_type, item.timestamp, item.tool_name,
        mask.encoded(item.tool_input), mask.encoded(output), mask.text(item.error), item.exit_code,
        mask.text(item.reason), item.role, mask.encoded(item.content),
    ]  # fmt: skip


def _context_row(item: NewEvent, now: datetime, mask: Masker | _Plain) -> list[Any]:
    """Return the context's row, made after the event's: it counts what was masked in both."""
    extra = mask.encoded(item.extra) if isinstance(item, ToldEvent) else None
    if mask.count:
        meters.MASKED.add(n=mask.count)
    received = instants.to_us(now)
    instant = instants.parse(item.timestamp)
    happened = received if instant is None else instants.to_us(instant)
    if isinstance(item, ToldEvent) and item.late:
        received = min(received, happened)
    return [
        item.session_id, happened, received // 1000,
        item.run_id, item.tool_use_id, item.subagent, item.prompt_id, item.duration_ms, item.model,
        item.input_tokens, item.output_tokens, item.cache_read_tokens, item.cache_write_tokens, item.source,
        extra, mask.count,
    ]  # fmt: skip


def _write(waiting: Sequence[tuple[int, Row]], outcomes: list[Outcome | None]) -> None:
    if not waiting:
        return
    first = _write_on_sqlite if connection.vendor == "sqlite" else _write_on_postgres
    ids = first([row for _, row in waiting])
    for (place, _), event_id in zip(waiting, ids, strict=True):
        outcomes[place] = Recorded(event_id)


def _write_on_sqlite(rows: Sequence[Row]) -> Sequence[int]:
    """Insert all rows with one statement a table: fewer steps, and so fewer hand-overs of the interpreter lock.

    Ids are given by us, after the last that AUTOINCREMENT gave: nobody else can write in this transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0),"
            " coalesce((SELECT max(id) FROM events), 0)) + 1"
        )
        first = int(cursor.fetchone()[0])
        cursor.execute(
            _sqlite_insert("events", "id", EVENT_COLUMNS), [first, _packed(row for row, _ in rows)]
        )
        cursor.execute(
            _sqlite_insert("event_context", "event_id", CONTEXT_COLUMNS),
            [first, _packed(context for _, context in rows)],
        )
    return range(first, first + len(rows))


def _packed(rows: Iterable[list[Any]]) -> str:
    return msgspec.json.encode(list(rows)).decode()


def _sqlite_insert(table: str, id_column: str, columns: Sequence[str]) -> str:
    values = ", ".join(f"json_extract(value, '$[{n}]')" for n in range(len(columns)))
    return (
        f"INSERT INTO {table} ({id_column}, {', '.join(columns)})"  # noqa: S608 - our own names
        f" SELECT %s + key, {values} FROM json_each(%s)"
    )


def _write_on_postgres(rows: Sequence[Row]) -> Sequence[int]:
    """COPY all rows into each table, with ids taken from the sequence."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence('events', 'id')) FROM generate_series(1, %s)", [len(rows)]
        )
        ids = [int(row[0]) for row in cursor.fetchall()]
        with cursor.copy(_copy("events", "id", EVENT_COLUMNS)) as copy:
            for event_id, (event, _) in zip(ids, rows, strict=True):
                copy.write_row([event_id, *event])
        with cursor.copy(_copy("event_context", "event_id", CONTEXT_COLUMNS)) as copy:
            for event_id, (_, context) in zip(ids, rows, strict=True):
                copy.write_row([event_id, *context])
    return ids


def _copy(table: str, id_column: str, columns: Sequence[str]) -> str:
    return f"COPY {table} ({id_column}, {', '.join(columns)}) FROM STDIN"


def adopt_events(first: int, last: int, now: datetime) -> int:
    """Give a context to the events `first` to `last` that other programs wrote without one; return how many.

    Safe to run anywhere, any time, twice at once. Without a context an event stands in no timeline.
    """
    orphans = (
        "FROM events e WHERE e.id BETWEEN %s AND %s"
        " AND NOT EXISTS (SELECT 1 FROM event_context c WHERE c.event_id = e.id)"
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 {orphans} LIMIT 1", [first, last])
        if cursor.fetchone() is None:  # nearly always: reading takes no lock
            return 0
    on_sqlite = connection.vendor == "sqlite"
    # Through Django's cursor a percent sign of SQL's own is doubled.
    instant = (
        instants.sqlite_us("e.timestamp").replace("%", "%%") if on_sqlite else "sbx_instant_us(e.timestamp)"
    )
    received = instants.to_us(now)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO event_context (event_id, session_id, instant_us, received_at, source)"
            f" SELECT e.id, e.session_id, coalesce({instant}, %s), %s, 'other' {orphans}"
            " ON CONFLICT DO NOTHING",
            [received, received // 1000, first, last],
        )
        return int(cursor.rowcount)


def adopt_all_events(now: datetime, *, step: int = 20_000) -> int:
    """Adopt whatever was written while no Signalbox ran; return how many events."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(min(id), 0), coalesce(max(id), -1) FROM events")
        first, last = cursor.fetchone()
    return sum(adopt_events(at, min(at + step - 1, last), now) for at in range(first, last + 1, step))
