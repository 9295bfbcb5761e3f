"""The delegations that a page lists: those of one person, or of everybody."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q

from coordinator.actions.deciders.delegations import delegation_usernames_by_user_id
from coordinator.models import Delegation

MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class DelegationLine:
    """A delegation as a list shows it. `can_end` is whether the viewer may end it."""

    row: Delegation
    giver: str
    receiver: str
    begun: bool
    can_end: bool


def list_delegation_lines(
    viewer: User, now: datetime, *, of: User | None = None, may_all: bool = False
) -> list[DelegationLine]:
    """Return current and upcoming delegations, at most MOST_SHOWN, in the order in which they end.

    Args:
        viewer: The person who views the list.
        now: The current time.
        of: The person whose delegations are listed; None for everybody's.
        may_all: Whether the viewer may end every delegation; else only their own.
    """
    delegations = Delegation.objects.current_or_upcoming(now).order_by("ends_at", "id")
    if of is not None:
        delegations = delegations.filter(Q(giver_id=of.pk) | Q(receiver_id=of.pk))
    rows = list(delegations[:MOST_SHOWN])
    delegation_names = delegation_usernames_by_user_id(rows)
    return [
        DelegationLine(
            row,
            delegation_names.get(row.giver_id, "a deleted user"),
            delegation_names.get(row.receiver_id, "a deleted user"),
            isinstance(row.starts_at, datetime) and row.starts_at <= now,
            may_all or viewer.pk in {row.giver_id, row.receiver_id},
        )
        for row in rows
    ]
