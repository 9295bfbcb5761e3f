"""Times and lengths of time as people read them. static/js/times.js says the same in the viewer's zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

MINUTE, HOUR, DAY, WEEK = 60, 3600, 86_400, 7 * 86_400


def exact(moment: datetime) -> str:
    """Return `2026-02-23 12:00:05 UTC`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def relative(moment: datetime, now: datetime) -> str:
    """Return `just now`, `5m ago`, `in 2h`; further away than a week, the date."""
    seconds = (now - moment).total_seconds()
    distance = abs(seconds)
    if distance < 10:
        return "just now"
    if distance >= WEEK:
        return _date(moment, now)
    amount = _one_unit(distance)
    return f"{amount} ago" if seconds > 0 else f"in {amount}"


def _one_unit(seconds: float) -> str:
    for size, sign in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{sign}"
    return f"{int(seconds)}s"


def _date(moment: datetime, now: datetime) -> str:
    this_year = moment.astimezone(UTC).year == now.astimezone(UTC).year
    return f"{moment.astimezone(UTC):%-d %b}" if this_year else f"{moment.astimezone(UTC):%-d %b %Y}"


def length(span: timedelta | float) -> str:
    """Return `340 ms`, `2.4 s`, `4m 12s`, `2h 03m`, `3d 4h` for a span or a number of seconds."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if seconds < 1:
        return f"{sign}{round(seconds * 1000)} ms"
    if seconds < 10:
        return f"{sign}{seconds:.1f} s"
    whole = int(seconds)
    if whole < MINUTE:
        return f"{sign}{whole} s"
    if whole < HOUR:
        return f"{sign}{whole // MINUTE}m {whole % MINUTE:02}s"
    if whole < DAY:
        return f"{sign}{whole // HOUR}h {whole % HOUR // MINUTE:02}m"
    return f"{sign}{whole // DAY}d {whole % DAY // HOUR}h"
