"""Hourly counts of tool calls by agent and tool, with their failures and durations.

An hour is counted as a whole from its events, and its rows are replaced. So an event whose transaction is committed
late, or whose id is lower than one that was counted before, is counted with the hour's next count. The current hour and
the one before are counted repeatedly, earlier ones once, the newest first. Counting twice gives the same.
"""

from __future__ import annotations

import time
from collections import Counter
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
# The hour's events by their receipt: an index has them, and no other column is looked at before.
_CALLS = f"""
SELECT coalesce(s.agent_name, ''), e.tool_name,
    CASE WHEN e.event_type = 'pre_tool' THEN 'begun' WHEN c.source = %s THEN 'gateway' ELSE 'ended' END,
    CASE WHEN e.error IS NULL THEN 0 ELSE 1 END, {_BUCKET}, count(*)
FROM event_context c
JOIN events e ON e.id = c.event_id
JOIN sessions s ON s.session_id = e.session_id
WHERE c.received_at >= %s AND c.received_at < %s
    AND e.event_type IN ('pre_tool', 'post_tool') AND e.tool_name IS NOT NULL
GROUP BY 1, 2, 3, 4, 5
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
        CountedHour.objects.update_or_create(hour=hour, defaults={"counted_at": now, "took_ms": took})
        ActivityHour.objects.filter(hour=hour).delete()
        ActivityHour.objects.bulk_create(rows, batch_size=500)


def build_activity_hours_from_events(hour: int) -> list[ActivityHour]:
    """Return a row for each agent and tool of an hour.

    An executor may report a call's beginning, its end, or both, and the gateway the end, too.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CALLS, [BY_GATEWAY, hour * HOUR, (hour + 1) * HOUR])
        counts = cursor.fetchall()
    rows: dict[tuple[str, str], dict[str, Counter[int]]] = {}
    failures: dict[tuple[str, str], Counter[str]] = {}
    for agent_name, tool_name, part, has_failed, bucket, count in counts:
        if not (isinstance(agent_name, str) and isinstance(tool_name, str)):
            continue  # what another program wrote, which is no name
        rows.setdefault((agent_name, tool_name), {}).setdefault(part, Counter())[bucket] += count
        failures.setdefault((agent_name, tool_name), Counter())[part] += count if has_failed else 0
    return [
        ActivityHour(
            hour=hour,
            agent_name=agent_name,
            tool_name=tool_name,
            calls=max(buckets.total() for buckets in parts.values()),
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
