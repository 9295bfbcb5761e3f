"""The version of the rights to decide: locked by each decision, incremented by each change of the rights.

A transaction that locks this row and a request's locks this one first, so that no deadlock is possible.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import F, Q

from coordinator.models import Delegation, RightsVersion

ONLY = 1
LATELY = timedelta(seconds=15)  # housekeeping looks every five


def lock_decision_rights() -> None:
    """Keep every right as it is until the transaction ends. Call it before a request's row is held."""
    if RightsVersion.objects.select_for_update().filter(pk=ONLY).first() is None:
        RightsVersion.objects.get_or_create(pk=ONLY)


def bump_decision_rights_version() -> None:
    """Wait for those who decide just now, and have decisions wait for this change. Call it first of all."""
    if not RightsVersion.objects.filter(pk=ONLY).update(number=F("number") + 1):
        RightsVersion.objects.get_or_create(pk=ONLY)


def announce_delegation_changes(now: datetime) -> None:
    """Notify open pages if a delegation has just begun or ended: pages refresh on changes, not by the clock."""
    lately = Q(starts_at__gt=now - LATELY, starts_at__lte=now) | Q(ends_at__gt=now - LATELY, ends_at__lte=now)
    if Delegation.objects.filter(lately, revoked_at__isnull=True).exists():
        with transaction.atomic():
            bump_decision_rights_version()


def reload_person(user: User | AnonymousUser) -> User | AnonymousUser:
    """Return the person from the database with their current role; a deleted person has none."""
    if not isinstance(user, User) or user.pk is None:  # nobody who could sign in: the demo's past
        return user
    return User.objects.filter(pk=user.pk).first() or User(username=user.get_username(), is_active=False)
