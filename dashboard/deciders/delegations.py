"""The delegations that a page shows: what one person has given and received, or everybody's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q

from coordinator.models import Delegation

MOST = 100


@dataclass(frozen=True, slots=True)
class Shown:
    """A delegation as a line of a page. `can_end`: the person who looks may end it."""

    row: Delegation
    begun: bool
    can_end: bool


def shown(viewer: User, now: datetime, *, of: User | None = None, may_all: bool = False) -> list[Shown]:
    """Return the delegations that stand or will, of one person or of all; `may_all` for who may end each."""
    rows = Delegation.objects.standing(now).select_related("giver", "receiver").order_by("ends_at", "id")
    if of is not None:
        rows = rows.filter(Q(giver=of) | Q(receiver=of))
    return [
        Shown(
            row,
            isinstance(row.starts_at, datetime) and row.starts_at <= now,
            may_all or viewer.pk in {row.giver_id, row.receiver_id},
        )
        for row in rows[:MOST]
    ]
