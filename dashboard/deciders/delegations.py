"""The delegations that a page shows: what one person has given and received, or everybody's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q

from coordinator.actions.deciders.delegations import load_delegation_usernames
from coordinator.models import Delegation

MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class DelegationLine:
    """A delegation as a line of a page. `can_end`: the person who looks may end it."""

    row: Delegation
    giver: str
    receiver: str
    begun: bool
    can_end: bool


def list_delegation_lines(
    viewer: User, now: datetime, *, of: User | None = None, may_all: bool = False
) -> list[DelegationLine]:
    """Return the delegations that stand or will, of one person or of all; `may_all` for who may end each."""
    delegations = Delegation.objects.current_or_upcoming(now).order_by("ends_at", "id")
    if of is not None:
        delegations = delegations.filter(Q(giver_id=of.pk) | Q(receiver_id=of.pk))
    rows = list(delegations[:MOST_SHOWN])
    delegation_names = load_delegation_usernames(rows)
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
