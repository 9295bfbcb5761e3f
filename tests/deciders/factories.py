"""Rows of "Who decides", groups and delegations for tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, User

from coordinator.models import DecidingRule, Delegation
from tests.approvals.factories import NOW


def row(*who: User | Group, **terms: Any) -> DecidingRule:
    """Return a further row that leaves requests with these terms to these people and groups."""
    return DecidingRule.objects.create(
        position=DecidingRule.objects.count() + 1,
        groups=[one.pk for one in who if isinstance(one, Group)],
        people=[one.pk for one in who if isinstance(one, User)],
        changed_at=NOW,
        changed_by="user:admin",
        **terms,
    )


def group(name: str, *members: User) -> Group:
    made = Group.objects.create(name=name)
    made.user_set.add(*members)
    return made


def handed(giver: User, receiver: User, *, hours: float = 1, after: float = 0) -> Delegation:
    """Return a delegation from `after` hours after NOW on, for so many hours."""
    start = NOW + timedelta(hours=after)
    return Delegation.objects.create(
        giver_id=giver.pk,
        receiver_id=receiver.pk,
        starts_at=start,
        ends_at=start + timedelta(hours=hours),
        made_at=NOW,
        made_by=f"user:{giver}",
    )
