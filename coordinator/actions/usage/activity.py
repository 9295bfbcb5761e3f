"""Hourly counts of tool calls by agent and tool, with their failures and durations.

An hour is counted as a whole from its events, and its rows are replaced. So an event whose transaction is committed
late, or whose id is lower than one that was counted before, is counted with the hour's next count. The current hour and
the one before are counted repeatedly, earlier ones once, the newest first, and again where calls of them are imported.
Counting twice gives the same.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import connection, transaction

from coordinator.models import ActivityHour, CountedHour
from coordinator.models.gateway import BY_GATEWAY
from coordinator.usage.activity import BOUNDS, DURATIONS, HOUR, datetime_of_hour_number, hours_since_1970

COUNTED_BACK = timedelta(days=14)  # of what was there before the first count
ACTIVITY_RETENTION = timedelta(days=35)
SETTLED_AFTER = timedelta(minutes=2)  # from an hour's end: nothing of it is committed later
MOST_TIME = 5.0  # seconds in one pass
LONGEST_SHARE = 20  # the hour that runs is counted again after this many times what counting it took

_BUCKET = (
    "CASE WHEN c.duration_ms IS NULL THEN -1 "
    + " ".join(f"WHEN c.duration_ms <= {bound} THEN {place}" for place, bound in enumerate(BOUNDS.values()))
    + f" ELSE {len(BOUNDS)} END"
)
# The call's beginning was received before the hour, and counts there. An index finds a session's events of a call.
_BEGAN_BEFORE = """EXISTS (
        SELECT 1 FROM event_context b JOIN events begun ON begun.id = b.event_id
        WHERE b.session_id = c.session_id AND b.tool_use_id = c.tool_use_id AND b.received_at < %s
            AND begun.event_type = 'pre_tool'
    )"""
# The hour's events by their receipt: an index has them, and no other column is looked at before.
_CALLS = f"""
SELECT coalesce(s.agent_name, ''), e.tool_name,
    CASE WHEN e.event_type = 'pre_tool' THEN 'begun' WHEN c.source = %s THEN 'gateway' ELSE 'ended' END,
    CASE WHEN e.error IS NULL THEN 0 ELSE 1 END, {_BUCKET},
    CASE WHEN e.event_type = 'post_tool' AND {_BEGAN_BEFORE} THEN 1 ELSE 0 END, count(*)
FROM event_context c
JOIN events e ON e.id = c.event_id
JOIN sessions s ON s.session_id = e.session_id
WHERE c.received_at >= %s AND c.received_at < %s
    AND e.event_type IN ('pre_tool', 'post_tool') AND e.tool_name IS NOT NULL
GROUP BY 1, 2, 3, 4, 5, 6
"""  # noqa: S608 - names and numbers of ours


def refresh_due_activity_hours(now: datetime) -> int:
    """Count the hours that are due, for a few seconds at most; return how many."""
    deadline = time.monotonic() + MOST_TIME
    current, first = hours_since_1970(now), hours_since_1970(now - COUNTED_BACK)
    counted = {row.hour: row for row in CountedHour.objects.filter(hour__gte=first)}
    number = 0
    for hour in range(current, first - 1, -1):
        row = counted.get(hour)
        if row is None or is_hour_recount_due(row, now):
            recount_and_store_hour_activity(hour, now)
            number += 1
            if time.monotonic() > deadline:
                break
    forgotten = hours_since_1970(now - ACTIVITY_RETENTION)
    ActivityHour.objects.filter(hour__lt=forgotten).delete()
    CountedHour.objects.filter(hour__lt=forgotten).delete()
    return number


def is_hour_recount_due(row: CountedHour, now: datetime) -> bool:
    """Return whether an hour that was counted is to be counted again."""
    if not isinstance(row.counted_at, datetime):
        return True
    is_settled = row.counted_at >= datetime_of_hour_number(row.hour + 1) + SETTLED_AFTER
    is_rested = now - row.counted_at >= timedelta(milliseconds=LONGEST_SHARE * row.took_ms)
    return not is_settled and is_rested


def recount_and_store_hour_activity(hour: int, now: datetime) -> None:
    """Replace what is stored of an hour by what its events say."""
    began = time.monotonic()
    rows = build_activity_hours_from_events(hour)
    took = round((time.monotonic() - began) * 1000)
    with transaction.atomic():
        _, is_counted_first = CountedHour.objects.update_or_create(
            hour=hour, defaults={"counted_at": now, "took_ms": took}
        )
        if is_counted_first:
            rows = keep_larger_earlier_counts(rows, ActivityHour.objects.filter(hour=hour))
        ActivityHour.objects.filter(hour=hour).delete()
        ActivityHour.objects.bulk_create(rows, batch_size=500)


def keep_larger_earlier_counts(
    rows: Iterable[ActivityHour], earlier_rows: Iterable[ActivityHour]
) -> list[ActivityHour]:
    """Return the rows of an hour, with those of an earlier count where that found more calls.

    An hour is counted as if for the first time after calls of it were imported. Events that the earlier count found may
    be deleted since.
    """
    kept_rows = {(row.agent_name, row.tool_name): row for row in rows}
    for row in earlier_rows:
        recounted = kept_rows.get((row.agent_name, row.tool_name))
        if recounted is None or recounted.calls < row.calls:
            row.pk = None
            kept_rows[row.agent_name, row.tool_name] = row
    return list(kept_rows.values())


def schedule_recount_of_hours(hours: Iterable[int], now: datetime) -> None:
    """Have these hours counted again, as calls that were made in them are reported now. Call it in a transaction."""
    current, first = hours_since_1970(now), hours_since_1970(now - COUNTED_BACK)
    past_hours = {hour for hour in hours if first <= hour < current}  # the current one is counted anyway
    counted = CountedHour.objects.select_for_update().filter(hour__in=past_hours).order_by("hour")
    CountedHour.objects.filter(hour__in=list(counted.values_list("hour", flat=True))).delete()


def build_activity_hours_from_events(hour: int) -> list[ActivityHour]:
    """Return a row for each agent and tool of an hour.

    An executor may report a call's beginning, its end, or both, and the gateway the end, too. Of a call that began in
    an earlier hour, its failure and its time count in the hour of its end, and the call itself does not.
    """
    begins_at = hour * HOUR
    with connection.cursor() as cursor:
        cursor.execute(_CALLS, [BY_GATEWAY, begins_at, begins_at, begins_at + HOUR])
        counts = cursor.fetchall()
    rows: dict[tuple[str, str], dict[str, Counter[int]]] = {}
    calls: dict[tuple[str, str], Counter[str]] = {}
    failures: dict[tuple[str, str], Counter[str]] = {}
    for agent_name, tool_name, part, has_failed, bucket, began_before, count in counts:
        if not (isinstance(agent_name, str) and isinstance(tool_name, str)):
            continue  # what another program wrote, which is no name
        rows.setdefault((agent_name, tool_name), {}).setdefault(part, Counter())[bucket] += count
        calls.setdefault((agent_name, tool_name), Counter())[part] += 0 if began_before else count
        failures.setdefault((agent_name, tool_name), Counter())[part] += count if has_failed else 0
    return [
        ActivityHour(
            hour=hour,
            agent_name=agent_name,
            tool_name=tool_name,
            calls=max(calls[agent_name, tool_name].values()),
            failed=max(failures[agent_name, tool_name].values()),
            **call_counts_by_duration_column(parts),
        )
        for (agent_name, tool_name), parts in sorted(rows.items())
    ]


def call_counts_by_duration_column(parts: dict[str, Counter[int]]) -> dict[str, int]:
    """Return how many calls took how long: as the executor says, or as the gateway does where it says more."""
    ends = max(
        (parts.get(part, Counter[int]()) for part in ("ended", "gateway")), key=count_timed_calls_in_buckets
    )
    return {column: ends[place] for place, column in enumerate(DURATIONS) if ends[place]}


def count_timed_calls_in_buckets(buckets: Counter[int]) -> int:
    return buckets.total() - buckets[-1]
