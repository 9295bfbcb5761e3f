"""A person's quiet hours, and the time zones that they may be in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from zoneinfo import available_timezones

from coordinator.models import QuietHours
from coordinator.notifications import quiet


@dataclass(frozen=True, slots=True)
class Quiet:
    """A person's quiet hours, and until when they are quiet now."""

    hours: QuietHours | None
    until: datetime | None


def quiet_of(person: str, now: datetime) -> Quiet:
    hours = QuietHours.objects.filter(pk=person).first()
    return Quiet(hours, quiet.ends(hours, now) if hours else None)


@cache
def zones() -> tuple[str, ...]:
    """Return the names of the zones that a person may choose."""
    return ("UTC", *sorted(one for one in available_timezones() if "/" in one and not one.startswith("Etc/")))
