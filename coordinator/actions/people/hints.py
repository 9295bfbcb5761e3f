"""Hints that a person has dismissed, stored per person for all their browsers."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User

from coordinator.models import DismissedHint


def dismiss_hint(user: User, name: str, now: datetime) -> None:
    """Show this hint to `user` no more. It decides nothing, so the audit log does not say so."""
    DismissedHint.objects.get_or_create(user_id=user.pk, name=name, defaults={"dismissed_at": now})


def is_hint_dismissed(user: User, name: str) -> bool:
    return DismissedHint.objects.filter(user_id=user.pk, name=name).exists()
