"""Records of how full the limits of subscriptions are, and notifications at the levels that people chose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from coordinator.actions import notifications
from coordinator.lib import instants
from coordinator.models import SubscriptionLimit
from coordinator.usage.limit_readings import LimitReading

MAX_LIMITS = 500  # of all programs and hosts; a key that makes up hosts fills no table
MAX_NAME_LENGTH = 200

__all__ = ["LimitReading", "record_subscription_limit_readings"]


def record_subscription_limit_readings(
    program: str, host: str, readings: Sequence[LimitReading], *, reported_at: datetime, now: datetime
) -> None:
    """Save these readings unless newer ones exist, and notify those whose chosen level is reached.

    A reading of a window that is over changes nothing while the window that is known goes on.
    """
    now_us = instants.instant_to_microseconds(now)
    at_us = min(instants.instant_to_microseconds(reported_at), now_us)
    with transaction.atomic():
        for reading in sorted(readings, key=lambda reading: (reading.name, reading.window_minutes)):
            key = {
                "program": program[:MAX_NAME_LENGTH],
                "host": host[:MAX_NAME_LENGTH],
                "name": reading.name[:MAX_NAME_LENGTH],
                "window_minutes": reading.window_minutes,
            }
            values = {
                "used_percent": reading.used_percent,
                "resets_at_us": reading.resets_at_us,
                "reported_at_us": at_us,
            }
            row = SubscriptionLimit.objects.select_for_update().filter(**key).first()
            if row is None:
                if SubscriptionLimit.objects.count() >= MAX_LIMITS:
                    SubscriptionLimit.objects.order_by("reported_at_us", "id")[:1].get().delete()
                row, _ = SubscriptionLimit.objects.get_or_create(**key, defaults=values)
            is_of_ended_window = reading.resets_at_us <= now_us < row.resets_at_us  # of a session that rests
            if row.reported_at_us <= at_us and not is_of_ended_window:
                SubscriptionLimit.objects.filter(pk=row.pk).update(**values)
                row.used_percent, row.resets_at_us = reading.used_percent, reading.resets_at_us
                if row.resets_at_us > now_us:
                    notifications.announce_subscription_limit_level(row, now=now)
