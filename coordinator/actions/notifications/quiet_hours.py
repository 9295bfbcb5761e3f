"""A person's quiet hours, set and cleared by themselves."""

from __future__ import annotations

from datetime import datetime, time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.contrib.auth.models import User
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.notifications.delivering import SEND
from coordinator.actions.upkeep.jobs import reschedule_waiting_jobs
from coordinator.errors import UnprocessableRequest
from coordinator.identity.actors import person_actor
from coordinator.models import Notification, QuietHours
from coordinator.models.notifications import QUIET


def set_quiet_hours(*, user: User, begins: str, ends: str, zone: str, now: datetime) -> QuietHours:
    """Send this person nothing from `begins` to `ends` ("22:00", "07:00") in the time zone `zone`.

    Raises UnprocessableRequest.
    """
    first, last = normalize_clock_time(begins), normalize_clock_time(ends)
    if first == last:
        raise UnprocessableRequest("The start and end of quiet hours must differ.")
    validate_time_zone(zone)
    values = {"zone": zone, "begins": first, "ends": last}
    with transaction.atomic():
        hours, _ = QuietHours.objects.update_or_create(pk=user.get_username(), defaults=values)
        record_quiet_hours_change("QUIET_HOURS_SET", user, values, now)
        reschedule_deferred_notifications(user, now)
    return hours


def clear_quiet_hours(*, user: User, now: datetime) -> None:
    """End this person's quiet hours. Deferred messages are sent at once."""
    with transaction.atomic():
        deleted, _ = QuietHours.objects.filter(pk=user.get_username()).delete()
        if deleted:
            record_quiet_hours_change("QUIET_HOURS_CLEARED", user, {}, now)
        reschedule_deferred_notifications(user, now)


def reschedule_deferred_notifications(user: User, now: datetime) -> None:
    """Reschedule deferred messages, because the person's quiet hours may have changed."""
    notifications = Notification.objects.filter(target__person=user.get_username(), outcome=QUIET)
    waiting = notifications.filter(state=Notification.State.WAITING).values_list("pk", flat=True)
    reschedule_waiting_jobs(SEND, map(str, waiting), at=now, now=now)


def normalize_clock_time(text: str) -> str:
    try:
        return time.fromisoformat(text.strip()).strftime("%H:%M")
    except ValueError:
        raise UnprocessableRequest("Write a time as 22:00.") from None


def validate_time_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UnprocessableRequest("Choose a time zone from the list, such as Europe/Berlin.") from None


def record_quiet_hours_change(event: str, user: User, values: dict[str, str], now: datetime) -> None:
    name = user.get_username()
    audit.record_audit_entry(
        event, actor=person_actor(user), target=name, result="success", metadata=values or None, now=now
    )
