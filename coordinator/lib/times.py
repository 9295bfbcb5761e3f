"""Times and lengths of time as people read them.

static/js/time-words.js says the same in the browser, with dates in the viewer's zone;
tests/pages/test_time_words.py compares the two.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

# Seconds; what is nearer than NOW is "just now".
NOW, MINUTE, HOUR, DAY, WEEK = 10, 60, 3600, 86_400, 7 * 86_400
LEEWAY = 1.05  # of lengths that are ahead, before they are rounded down


def format_exact_time(moment: datetime) -> str:
    """Return `2026-02-23 12:00:05 UTC`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_relative_time(moment: datetime, now: datetime) -> str:
    """Return `just now`, `5m ago`, `in 2h`; further away than a week, the date.

    What is ahead is rounded down with a leeway: what was set for two hours is said to be in 2h, not in 1h.
    """
    seconds = (now - moment).total_seconds()
    if abs(seconds) >= WEEK:
        return format_short_date(moment, now)
    if seconds <= -NOW:
        leeway = 1 if -seconds < MINUTE else LEEWAY
        return f"in {format_rough_duration(-seconds * leeway)}"
    return format_time_ago(moment, now)


def format_time_ago(moment: datetime, now: datetime) -> str:
    """Return `just now`, `5m ago`, `40d ago`, for the middle of a sentence; the future is `just now`."""
    seconds = (now - moment).total_seconds()
    return "just now" if seconds < NOW else f"{format_rough_duration(seconds)} ago"


def format_rough_duration(span: timedelta | float) -> str:
    """Return `42s`, `5m`, `2h`, `3d` for a span or a number of seconds: its largest unit, rounded down."""
    seconds = duration_seconds(span)
    for size, sign in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{sign}"
    return f"{int(seconds)}s"


def format_short_date(moment: datetime, now: datetime) -> str:
    this_year = moment.astimezone(UTC).year == now.astimezone(UTC).year
    return f"{moment.astimezone(UTC):%-d %b}" if this_year else f"{moment.astimezone(UTC):%-d %b %Y}"


def format_duration(span: timedelta | float) -> str:
    """Return `340 ms`, `2.4 s`, `4m 12s`, `2h 03m`, `3d 4h` for a span or a number of seconds.

    Two clocks may differ, so that something seems to end before it began: that took no time.
    """
    seconds = max(duration_seconds(span), 0.0)
    if seconds < 1:
        return f"{int(seconds * 1000 + 0.5)} ms"
    if seconds < 10:
        return f"{int(seconds * 10 + 0.5) / 10:.1f} s"
    return format_whole_second_duration(seconds)


def format_whole_second_duration(span: timedelta | float) -> str:
    """Return the same for what ticks: whole seconds, and none below 0."""
    total_seconds = max(0, int(duration_seconds(span)))
    if total_seconds < MINUTE:
        return f"{total_seconds} s"
    if total_seconds < HOUR:
        return f"{total_seconds // MINUTE}m {total_seconds % MINUTE:02}s"
    if total_seconds < DAY:
        return f"{total_seconds // HOUR}h {total_seconds % HOUR // MINUTE:02}m"
    return f"{total_seconds // DAY}d {total_seconds % DAY // HOUR}h"


def duration_seconds(span: timedelta | float) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else float(span)
