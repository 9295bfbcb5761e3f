"""Background backfill of the usage of older events, and of missing prices.

Migration 0086 records the newest older event. From there this goes back, some events at a time, each slice with its
progress in one transaction. Nothing is counted twice: an event has one row at most. Budgets do not wait for it, because
their sums by day date from before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from coordinator.actions.usage import recording
from coordinator.models import EventContext, ModelRequestUsage, UsageDay, UsageFill
from coordinator.usage import prices
from coordinator.usage.amounts import NO_DETAIL, UsageDetail
from coordinator.usage.reading import sum_usage_rows

FILL_STEP = 20_000  # ids of events a transaction
FILL_SECONDS = 1.0  # for so long one run of the job goes on
PRICED_AT_ONCE = 1_000  # rows
_COLUMNS = ("event_id", "session_id", "subagent", "instant_us", "received_at", "model", "source")
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def backfill_usage_within_time_limit(now: datetime, *, step: int = FILL_STEP) -> int:  # noqa: ARG001 - a job's shape
    """Count what events of before used, for about a second; return how many requests were added."""
    added, until = 0, time.monotonic() + FILL_SECONDS
    while time.monotonic() < until:
        done = backfill_next_slice_or_none(step)
        if done is None:
            break
        added += done
    return added


def backfill_next_slice_or_none(step: int) -> int | None:
    """Count one slice; return how many requests were added, None where all events of before are counted."""
    with transaction.atomic():
        fill = UsageFill.objects.select_for_update().order_by("id").first()
        if fill is None:
            return None
        if fill.next_id > 0:
            added = add_usage_rows_of_events(fill.next_id - step, fill.next_id)
            fill.next_id = max(0, fill.next_id - step)
            fill.save(update_fields=["next_id"])
            return added
        # Events that a server of the previous version wrote during the migration come after the starting point.
        last = newest_event_id()
        if last <= fill.first_id:
            fill.delete()
            return None
        added = add_usage_rows_of_events(fill.first_id, min(fill.first_id + step, last))
        fill.first_id = min(fill.first_id + step, last)
        fill.save(update_fields=["first_id"])
        return added


def newest_event_id() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(event_id) FROM event_context")
        return int(cursor.fetchone()[0] or 0)


def add_usage_rows_of_events(after: int, upto: int) -> int:
    """Add a row for each request among the events with ids beyond `after` up to `upto` that has none."""
    names = ", ".join(f"c.{name}" for name in (*_COLUMNS, *_TOKENS))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {names} FROM event_context c"  # noqa: S608 - names of ours
            " WHERE c.event_id > %s AND c.event_id <= %s AND c.output_tokens IS NOT NULL"
            " AND NOT EXISTS (SELECT 1 FROM usage_requests u WHERE u.event_id = c.event_id)",
            [after, upto],
        )
        event_rows = cursor.fetchall()
    if not event_rows:
        return 0
    own = prices.load_configured_model_prices()
    rows = [
        recording.build_priced_usage_row(
            request_key=recording.build_request_key_from_event_id(event_id),
            event_id=event_id,
            session_id=session_id,
            subagent=subagent,
            at_us=min(instant_us, received_at * 1000),
            model=model,
            tokens=dict(zip(_TOKENS, tokens, strict=True)),
            detail=NO_DETAIL,
            source=source,
            own=own,
        )
        for event_id, session_id, subagent, instant_us, received_at, model, source, *tokens in event_rows
    ]
    return len(recording.insert_usage_rows_returning_keys(rows))


def add_events_to_usage_days(after: int, upto: int) -> None:
    """Sum the calls and requests of the events with ids beyond `after` up to `upto` by day. Call it once for each."""
    sums: dict[tuple[str, str, str], list[Any]] = {}
    for row in ModelRequestUsage.objects.filter(event_id__gt=after, event_id__lte=upto):
        recording.add_usage_row_to_sums(sums, row)
    calls = EventContext.objects.filter(
        event_id__gt=after, event_id__lte=upto, event__event_type=recording.CALL
    )
    for session_id, at_us in calls.values_list("session_id", "instant_us"):
        key = (session_id, recording.local_iso_day_of_request(at_us), "")
        sums.setdefault(key, recording.build_zero_usage_day_row())[0] += 1
    if sums:
        recording.add_sums_to_usage_days(sums)


def price_unpriced_usage(now: datetime) -> int:  # noqa: ARG001 - the shape of a job
    """Price requests that had no price, where there is one now; return how many."""
    own, priced = prices.load_configured_model_prices(), 0
    unpriced = ModelRequestUsage.objects.filter(cost__isnull=True)
    for model in list(unpriced.order_by().values_list("model", flat=True).distinct()):
        last = 0
        while rows := list(unpriced.filter(model=model, pk__gt=last).order_by("pk")[:PRICED_AT_ONCE]):
            last = rows[-1].pk
            priced += price_usage_rows([row.pk for row in rows], own)
    return priced


@transaction.atomic
def price_usage_rows(row_ids: Sequence[int], own: dict[str, prices.TokenPrice]) -> int:
    """Price these rows of one model, as far as there are prices, and let their days follow; return how many.

    The rows are locked before they are read, in the order of `recording`: their amounts may just be growing.
    """
    changed = []
    unpriced = ModelRequestUsage.objects.select_for_update().filter(pk__in=row_ids, cost__isnull=True)
    for row in unpriced.order_by("request_key"):
        detail = UsageDetail(speed="fast" if row.is_fast else None, is_batch=row.is_batch)
        at = recording.usage_pricing_time(row.at_us)
        row.cost = prices.calculate_request_cost(row.model, recording.usage_row_amounts(row), own, at, detail)
        if row.cost is not None:
            changed.append(row)
    ModelRequestUsage.objects.bulk_update(changed, ["cost"], batch_size=200)
    for key in sorted({(row.session_id, row.day, row.model) for row in changed}):
        recalculate_usage_day_cost(*key)
    return len(changed)


def recalculate_usage_day_cost(session_id: str, day: str, model: str) -> None:
    """Sum the costs of a session's day and model again, in a transaction.

    The day is locked first: what is just being added to it is then in the sum, or is added afterwards.
    """
    key = {"session_id": session_id, "day": day, "model": model}
    day_row = UsageDay.objects.select_for_update().filter(**key, cost__isnull=False).first()
    if day_row is not None:
        usage = sum_usage_rows(ModelRequestUsage.objects.filter(**key))
        UsageDay.objects.filter(pk=day_row.pk).update(cost=usage.cost, unpriced_tokens=usage.unpriced_tokens)
