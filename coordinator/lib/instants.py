"""Instants as text: the forms that are read, the one form that is written, in Python and in SQL alike.

Rows written by other programs hold `2026-02-23T12:00:00Z`, other offsets, nine digits of a second, or `2026-02-23
12:00:00` (UTC). Texts of unlike forms must never be compared as texts: `…T…` sorts after `… …`, and an offset moves
the clock by hours. So every comparison goes through microseconds since 1970 (UTC), worked out by
`instant_to_microseconds` here and by the same grammar in SQL on each engine; a text outside the grammar is no instant
(None, NULL) and never an error. tests/schema/test_instants.py holds the three readers to one another.

The grammar: `YYYY-MM-DD`, `T` or a blank, `HH:MM:SS`, at most nine digits of a second (cut to six), and `Z`,
`±HH:MM`, `±HHMM` (up to 14:59) or nothing, which means UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
QUARTER_MS = 900_000  # of an hour: days of today's time zones begin with one

_READABLE = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[T ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)"
    r"(?:\.(\d{1,9}))?(?:Z|([+-])(0\d|1[0-4]):?([0-5]\d))?",
    re.ASCII,
)

# The same grammar for PostgreSQL. It must not raise: it runs inside triggers and on rows of other programs.
# PARALLEL UNSAFE, because its handler is a subtransaction, which fails in a query that runs in parallel.
# Impossible dates (30 February) and years before 1 are rejected by the cast, which the handler turns into NULL.
POSTGRES_FUNCTION = r"""
CREATE OR REPLACE FUNCTION sbx_instant_us(value text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE AS $body$
DECLARE
    part text[] := regexp_match(value,
        '^(\d{4}-\d{2}-\d{2})[T ]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d{1,9}))?(Z|[+-](?:0\d|1[0-4]):?[0-5]\d)?$');
BEGIN
    IF part IS NULL THEN RETURN NULL; END IF;
    RETURN 1000000 * extract(epoch FROM
            (part[1] || ' ' || part[2] || coalesce(nullif(part[4], 'Z'), '+00:00'))::timestamptz)::bigint
        + rpad(left(coalesce(part[3], ''), 6), 6, '0')::bigint;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$body$
"""


@lru_cache(maxsize=4_096)  # an event's time is read several times on its way
def parse_instant_or_none(text: str) -> datetime | None:
    """Return the instant that `text` names, in UTC, or None where it names none."""
    match = _READABLE.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, off_hours, off_minutes = match.groups()
    try:
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
        offset = timedelta(hours=int(off_hours or 0), minutes=int(off_minutes or 0))
        instant = local + offset if sign == "-" else local - offset
    except (ValueError, OverflowError):
        return None
    return instant.replace(microsecond=int((fraction or "")[:6].ljust(6, "0")))


def format_canonical_instant(instant: datetime) -> str:
    """Return the one text we write, `2026-02-23T12:00:00.000000+00:00`: text order is time order."""
    if instant.tzinfo is None:
        raise ValueError(f"An instant needs a time zone: {instant!r}.")
    return instant.astimezone(UTC).isoformat(timespec="microseconds")


def instant_to_microseconds(instant: datetime) -> int:
    """Return whole microseconds since 1970."""
    return (instant - EPOCH) // MICROSECOND


def instant_to_milliseconds(instant: datetime) -> int:
    """Return whole milliseconds since 1970."""
    return instant_to_microseconds(instant) // 1000


def instant_from_microseconds(microseconds: int) -> datetime:
    """Return the instant so many microseconds after 1970; OverflowError outside the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=microseconds)


def local_iso_date_of_milliseconds(milliseconds: int, zone: tzinfo) -> str:
    """Return the day of an instant (milliseconds since 1970) as the clocks of a zone have it, `2026-02-23`."""
    return local_iso_date_of_quarter_hour(milliseconds // QUARTER_MS, zone)


@lru_cache(maxsize=1_024)  # asked for each event
def local_iso_date_of_quarter_hour(quarter: int, zone: tzinfo) -> str:
    return instant_from_microseconds(quarter * QUARTER_MS * 1000).astimezone(zone).date().isoformat()


def end_of_day(instant: datetime, zone: tzinfo) -> datetime:
    """Return when the instant's day in a zone is over: 23 to 25 hours after it began where clocks are changed."""
    tomorrow = instant.astimezone(zone).date() + timedelta(days=1)
    return datetime.combine(tomorrow, time.min, zone).astimezone(UTC)


def sqlite_text_to_microseconds_sql(column: str) -> str:
    """Return SQL for the microseconds of a text column on SQLite: NULL where it names no instant.

    Plain SQL, because triggers run it for every program that writes to the file, not only for ours.
    """
    seconds_text = f"substr({column}, 1, 19)"
    # What follows the seconds, without the fraction: the zone.
    zone = f"ltrim(substr({column}, 20), '.0123456789')"
    fraction = f"substr({column}, 20, length({column}) - 19 - length({zone}))"
    zone_hours_minutes = f"substr({zone}, 1, 3) || ':' || substr({zone}, -2)"
    return (
        f"CASE WHEN typeof({column}) = 'text'"
        f" AND {seconds_text} GLOB"
        " '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9]'"
        f" AND substr({column}, 12, 2) < '24' AND substr({column}, 1, 4) > '0000'"
        # 30 February would be read as 2 March.
        f" AND date(substr({column}, 1, 10), '+0 days') = substr({column}, 1, 10)"
        f" AND ({fraction} = '' OR (length({fraction}) BETWEEN 2 AND 10"
        f" AND {fraction} GLOB '.[0-9]*' AND substr({fraction}, 2) NOT GLOB '*[^0-9]*'))"
        f" AND ({zone} IN ('', 'Z') OR (({zone} GLOB '[+-][0-1][0-9]:[0-5][0-9]'"
        f" OR {zone} GLOB '[+-][0-1][0-9][0-5][0-9]') AND substr({zone}, 2, 2) < '15'))"
        f" THEN CAST(strftime('%s', {seconds_text} || CASE WHEN {zone} IN ('', 'Z') THEN ''"
        f" ELSE {zone_hours_minutes} END) AS INTEGER) * 1000000"
        f" + CAST(substr(substr({fraction}, 2, 6) || '000000', 1, 6) AS INTEGER) END"
    )
