"""A person's choices of the notifications that are not about requests."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.identity.actors import person_actor
from coordinator.models import NotificationChoice


def set_unguarded_call_notifications(*, user: User, notify: bool, now: datetime) -> None:
    """Notify this person of calls that ran without a guard, or no more."""
    name = user.get_username()
    with transaction.atomic():
        NotificationChoice.objects.update_or_create(pk=name, defaults={"unguarded": notify})
        audit.record_audit_entry(
            "NOTIFICATION_CHOICE_SET",
            actor=person_actor(user),
            target=name,
            result="success",
            metadata={"unguarded": notify},
            now=now,
        )
