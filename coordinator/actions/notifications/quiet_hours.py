"""A person's quiet hours: set and cleared by themselves."""

from __future__ import annotations

from datetime import datetime, time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.contrib.auth.models import User
from django.db import transaction

from coordinator.actions import audit
from coordinator.errors import Invalid
from coordinator.identity.actors import person as person_actor
from coordinator.models import Notification, QuietHours
from coordinator.models.notifications import QUIET


def set_quiet(*, by: User, begins: str, ends: str, zone: str, now: datetime) -> QuietHours:
    """Tell this person nothing from `begins` to `ends` ("22:00", "07:00") on the clocks of `zone`. Raises Invalid."""
    first, last = _clock(begins), _clock(ends)
    if first == last:
        raise Invalid("The start and end of quiet hours must differ.")
    _require_zone(zone)
    values = {"zone": zone, "begins": first, "ends": last}
    with transaction.atomic():
        hours, _ = QuietHours.objects.update_or_create(pk=by.get_username(), defaults=values)
        _record("QUIET_HOURS_SET", by, values, now)
        _try_again(by, now)
    return hours


def clear_quiet(*, by: User, now: datetime) -> None:
    """Tell this person at any hour. What was kept back is told at once."""
    with transaction.atomic():
        deleted, _ = QuietHours.objects.filter(pk=by.get_username()).delete()
        if deleted:
            _record("QUIET_HOURS_CLEARED", by, {}, now)
        _try_again(by, now)


def _try_again(by: User, now: datetime) -> None:
    """Have what was kept back looked at anew: its hours may be others now."""
    kept = Notification.objects.filter(target__person=by.get_username(), outcome=QUIET)
    kept.filter(state=Notification.State.WAITING).update(next_at=now)


def _clock(text: str) -> str:
    try:
        return time.fromisoformat(text.strip()).strftime("%H:%M")
    except ValueError:
        raise Invalid("Write a time as 22:00.") from None


def _require_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Invalid("Choose a time zone from the list, such as Europe/Berlin.") from None


def _record(event: str, by: User, values: dict[str, str], now: datetime) -> None:
    name = by.get_username()
    audit.record(
        event, actor=person_actor(by), target=name, result="success", metadata=values or None, now=now
    )
