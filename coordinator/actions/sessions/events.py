"""Ingest of events: one transaction for many, each with its context, lifecycle events with their effects.

Speed is the point here (thousands a second), so rows go in by one statement a table, not through the ORM (engine.bulk).
tests/events compares the bytes with the ORM's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec
from django.db import connection, transaction

from coordinator.actions.sessions import origins
from coordinator.actions.sessions.sessions import advance_session_and_decide_storage
from coordinator.actions.usage import activity, recording
from coordinator.actions.usage.recording import WrittenEvent
from coordinator.engine import bulk, locks, values
from coordinator.errors import NotFound, SignalboxError, UnprocessableRequest
from coordinator.lib import instants
from coordinator.lib import process_metrics as meters
from coordinator.lib.storable import is_storable_text
from coordinator.runs.statuses import START_EVENTS, STOP_EVENTS
from coordinator.secrets.masking import SecretMasker, create_masker_if_enabled
from coordinator.sessions.events import (
    CONTEXT_COLUMNS,
    CONTEXT_FIELDS,
    EVENT_COLUMNS,
    JSON_COLUMNS,
    MASKED_TEXTS,
    TEXTS,
    DedupedEvent,
    NewEvent,
    RecordedEvent,
)
from coordinator.usage.activity import HOUR

log = logging.getLogger(__name__)


# Events that report a session's or run's status; the session's status follows them in the same transaction.
LIFECYCLE = frozenset((*START_EVENTS, *STOP_EVENTS))
TOOL_EVENTS = frozenset(("pre_tool", "post_tool"))


Outcome = RecordedEvent | SignalboxError
_event_fields = attrgetter(*EVENT_COLUMNS)
_context_fields = attrgetter(*CONTEXT_FIELDS)
_OUTPUT_TOKENS = CONTEXT_FIELDS.index("output_tokens")
_OTHER_TOKENS = tuple(map(CONTEXT_FIELDS.index, ("input_tokens", "cache_read_tokens", "cache_write_tokens")))
_JSON = tuple(map(EVENT_COLUMNS.index, JSON_COLUMNS))
_MASKED = tuple(map(EVENT_COLUMNS.index, MASKED_TEXTS))
_OUTPUT = EVENT_COLUMNS.index("tool_output")
_RECEIVED = CONTEXT_COLUMNS.index("received_at")
# Both rows of one event as columns' values, JSON already as text.
Row = tuple[list[Any], list[Any]]


@dataclass(frozen=True, slots=True)
class PreparedEvent:
    """An event as the rows to write, or why it cannot be written."""

    item: NewEvent
    rows: Row | UnprocessableRequest


def record_events(items: Sequence[NewEvent], now: datetime) -> list[Outcome]:
    """Write the events in order, in one transaction, and return each one's id or why it was refused.

    An event of an unknown session (NotFound) or with a text that no database can hold (Invalid) is refused
    alone; the others are written. Database errors are raised, and then nothing is written.
    """
    with transaction.atomic():
        return write_prepared_events(prepare_event_rows(items, now), now)


def prepare_event_rows(items: Iterable[NewEvent], now: datetime) -> list[PreparedEvent]:
    """Do what can be done before the transaction begins: other writers wait while it lasts."""
    return [PreparedEvent(item, build_event_row_or_error(item, now)) for item in items]


def write_prepared_events(prepared: Sequence[PreparedEvent], now: datetime) -> list[Outcome]:
    """Write prepared events, as `record_events` says. Must be called within a transaction."""
    named_ids = {prepared_event.item.session_id for prepared_event in prepared}
    # Held against deletion until the transaction ends.
    existing_ids = locks.lock_existing_sessions(sorted(filter(is_storable_text, named_ids)))
    locks.lock_sessions_in_order(
        {
            prepared_event.item.session_id
            for prepared_event in prepared
            if prepared_event.item.event_type in LIFECYCLE
        }
        & existing_ids
    )
    duplicates = origins.claim_origins_and_find_duplicates(
        [
            prepared_event.item
            for prepared_event in prepared
            if isinstance(prepared_event.item, DedupedEvent)
            and find_event_write_error(prepared_event, existing_ids) is None
        ],
        now,
    )
    outcomes: list[Outcome | None] = []
    repeated = [
        prepared_event.item
        for prepared_event in prepared
        if id(prepared_event.item) in duplicates and recording.event_reports_tokens(prepared_event.item)
    ]
    waiting: list[tuple[int, NewEvent, Row]] = []
    for position, prepared_event in enumerate(prepared):
        refused = find_event_write_error(prepared_event, existing_ids) or (
            RecordedEvent(None) if id(prepared_event.item) in duplicates else None
        )
        outcomes.append(refused)
        if refused is not None or isinstance(prepared_event.rows, UnprocessableRequest):
            continue
        if prepared_event.item.event_type in LIFECYCLE:
            insert_events_and_fill_outcomes(
                waiting, outcomes, now
            )  # what came before is there when the session's fate is decided
            waiting = []
            outcomes[position] = apply_lifecycle_or_return_outcome(prepared_event.item, now)
            if outcomes[position] is not None:
                continue
        waiting.append((position, prepared_event.item, prepared_event.rows))
    insert_events_and_fill_outcomes(waiting, outcomes, now)
    if repeated:  # after the first report, which may be in the same batch
        recording.raise_recorded_usage_amounts(
            [recording.build_usage_report_of_event(item) for item in repeated]
        )
    return [outcome for outcome in outcomes if outcome is not None]


def find_event_write_error(event: PreparedEvent, existing_ids: set[str]) -> SignalboxError | None:
    if isinstance(event.rows, UnprocessableRequest):
        return event.rows
    return None if event.item.session_id in existing_ids else NotFound("Session not found")


def apply_lifecycle_or_return_outcome(item: NewEvent, now: datetime) -> Outcome | None:
    """Let the session follow the event; return the outcome of one that is not to be stored."""
    try:
        with transaction.atomic():
            to_be_stored = advance_session_and_decide_storage(item.session_id, item, now)
    except SignalboxError as refusal:
        return refusal
    return None if to_be_stored else RecordedEvent(None)


def build_event_row_or_error(item: NewEvent, now: datetime) -> Row | UnprocessableRequest:
    for name in TEXTS:
        text = getattr(item, name)
        if text is not None and not is_storable_text(text):
            return UnprocessableRequest([build_unstorable_text_error_detail(name, text)])
    try:
        return build_masked_event_rows(item, now, create_masker_if_enabled() or UnmaskedEventEncoder())
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError) as problem:
        return UnprocessableRequest(f"The event cannot be written as JSON: {problem}")


def build_unstorable_text_error_detail(name: str, text: str) -> dict[str, Any]:
    escaped_text = text.encode("ascii", "backslashreplace").decode()[:200]
    message = "Text must not hold a NUL character or a lone surrogate"
    return {"type": "value_error", "loc": ["body", name], "msg": message, "input": escaped_text}


class UnmaskedEventEncoder:
    """Used instead of a masker when masking is switched off."""

    count = 0

    @staticmethod
    def mask_values_and_texts(
        values: Sequence[Any], texts: Sequence[str | None]
    ) -> tuple[list[str | None], list[str | None]]:
        return [None if value is None else msgspec.json.encode(value).decode() for value in values], list(
            texts
        )


def build_masked_event_rows(item: NewEvent, now: datetime, mask: SecretMasker | UnmaskedEventEncoder) -> Row:
    event = list(_event_fields(item))
    if item.tool_output is None and (item.result_text is not None or item.result_data is not None):
        event[_OUTPUT] = {"result_text": item.result_text, "result_data": item.result_data}
    extra = item.extra if isinstance(item, DedupedEvent) else None
    values, texts = mask.mask_values_and_texts(
        [*(event[column] for column in _JSON), extra], [event[column] for column in _MASKED]
    )
    for column, value in zip((*_JSON, *_MASKED), (*values[:-1], *texts), strict=True):
        event[column] = value
    return event, build_context_row_metering_masks(item, now, values[-1], mask.count)


def build_context_row_metering_masks(
    item: NewEvent, now: datetime, extra: str | None, masked: int
) -> list[Any]:
    if masked:
        meters.MASKED.add(n=masked)
    received = instants.instant_to_microseconds(now)
    instant = instants.parse_instant_or_none(item.timestamp)
    happened = received if instant is None else instants.instant_to_microseconds(instant)
    if isinstance(item, DedupedEvent) and item.late:
        received = min(received, happened)
    fields = list(_context_fields(item))
    if fields[_OUTPUT_TOKENS] is None and any(fields[place] is not None for place in _OTHER_TOKENS):
        fields[_OUTPUT_TOKENS] = 0  # token reports are found by their output tokens
    return [item.session_id, happened, received // 1000, *fields, extra, masked]


def insert_events_and_fill_outcomes(
    waiting: Sequence[tuple[int, NewEvent, Row]], outcomes: list[Outcome | None], now: datetime
) -> None:
    if not waiting:
        return
    rows = [row for _, _, row in waiting]
    ids = bulk.insert_rows_into_two_tables(
        "events",
        EVENT_COLUMNS,
        rows,
        second_table="event_context",
        key="event_id",
        second_columns=CONTEXT_COLUMNS,
    )
    recording.record_usage_of_events(
        [
            WrittenEvent(item, event, context, event_id)
            for (_, item, (event, context)), event_id in zip(waiting, ids, strict=True)
        ]
    )
    late_hours = {
        context[_RECEIVED] // HOUR
        for _, item, (_, context) in waiting
        if isinstance(item, DedupedEvent) and item.late and item.event_type in TOOL_EVENTS
    }
    if late_hours:  # those may have been counted without these calls
        activity.schedule_recount_of_hours(late_hours, now)
    for (position, _, _), event_id in zip(waiting, ids, strict=True):
        outcomes[position] = RecordedEvent(event_id)


def add_contexts_missing_in_range(first: int, last: int, now: datetime) -> int:
    """Give a context to the events `first` to `last` that other programs wrote without one; return how many.

    Safe to run anywhere, any time, twice at once. Without a context an event is in no timeline.
    """
    orphans = (
        "FROM events e WHERE e.id BETWEEN %s AND %s"
        " AND NOT EXISTS (SELECT 1 FROM event_context c WHERE c.event_id = e.id AND c.event_id BETWEEN %s AND %s)"
    )
    # Said of both: PostgreSQL looks into the parts of both tables that have them.
    among = [first, last, first, last]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 {orphans} LIMIT 1", among)
        if cursor.fetchone() is None:  # nearly always: reading takes no lock
            return 0
    instant = values.instant_microseconds_sql("e.timestamp")
    received = instants.instant_to_microseconds(now)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO event_context (event_id, session_id, instant_us, received_at, source)"
            f" SELECT e.id, e.session_id, coalesce({instant}, %s), %s, 'other' {orphans}"
            " ON CONFLICT DO NOTHING",
            [received, received // 1000, *among],
        )
        return int(cursor.rowcount)


ADOPTING_STEP = 20_000  # events
LATE = 500_000  # ids below the newest one that an event of a transaction still open may get


def add_all_missing_event_contexts(now: datetime, *, step: int = ADOPTING_STEP) -> int:
    """Adopt whatever was written while no Signalbox ran; return how many events."""
    return sum(
        add_contexts_missing_in_range(first, last, now)
        for first, last in bulk.iterate_id_ranges("events", "id", step)
    )


class AdoptionProgress:
    """How far this process has looked for events without a context: all up to the id `upto`."""

    upto: int | None = None


def add_new_missing_event_contexts(now: datetime, *, step: int = ADOPTING_STEP) -> int:
    """Add contexts to all events at first, later to those since the last time; return how many.

    The feed reports events at once. This is for events that were written while no process listened, which needs one
    pass of this process only: checking twenty million events each hour cost a minute of processor time.
    """
    adopted, after = 0, None if AdoptionProgress.upto is None else AdoptionProgress.upto - LATE
    for first, last in bulk.iterate_id_ranges("events", "id", step, after):
        adopted += add_contexts_missing_in_range(first, last, now)
        AdoptionProgress.upto = max(last, AdoptionProgress.upto or last)
    return adopted
