"""Quiet hours: when a person is not notified, on the clocks of their own zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from coordinator.models import QuietHours

DAY = timedelta(days=1)


def person_quiet_until(person: str, now: datetime) -> datetime | None:
    """Return when the person's quiet hours end, or None where there are none at `now`."""
    hours = QuietHours.objects.filter(pk=person).first()
    return quiet_hours_end(hours, now) if hours is not None else None


def quiet_hours_end(hours: QuietHours, now: datetime) -> datetime | None:
    """Return when these quiet hours end, or None where `now` is not within them.

    What cannot be read, which another program wrote, keeps nothing quiet. An hour that clocks show twice counts as
    quiet both times; one that they leave out ends an hour later.
    """
    try:
        zone, begins, over = (
            ZoneInfo(hours.zone),
            time.fromisoformat(hours.begins),
            time.fromisoformat(hours.ends),
        )
    except (ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError of its own
        return None
    except KeyError:
        return None
    if begins.tzinfo or over.tzinfo:  # a time with an offset is none of the zone's clocks
        return None
    today = now.astimezone(zone).date()
    for day in (today - DAY, today):
        start = min(instants_of_clock_time(day, begins, zone))
        end = max(instants_of_clock_time(day if over > begins else day + DAY, over, zone))
        if start <= now < end:
            return end
    return None


def instants_of_clock_time(day: date, clock: time, zone: ZoneInfo) -> list[datetime]:
    """Return when clocks in the zone show this: one instant, or two around a change of the clocks."""
    local_time = datetime.combine(day, clock, tzinfo=zone)
    return [local_time.replace(fold=fold).astimezone(UTC) for fold in (0, 1)]
