"""A person's quiet hours, and the time zones that they may be in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from zoneinfo import available_timezones

from coordinator.models import QuietHours
from coordinator.notifications import quiet_hours


@dataclass(frozen=True, slots=True)
class QuietState:
    """A person's quiet hours, and until when they are quiet now."""

    hours: QuietHours | None
    until: datetime | None


def load_quiet_state(person: str, now: datetime) -> QuietState:
    hours = QuietHours.objects.filter(pk=person).first()
    return QuietState(hours, quiet_hours.quiet_hours_end(hours, now) if hours else None)


@cache
def list_time_zone_names() -> tuple[str, ...]:
    """Return the names of the zones that a person may choose."""
    return (
        "UTC",
        *sorted(zone for zone in available_timezones() if "/" in zone and not zone.startswith("Etc/")),
    )
