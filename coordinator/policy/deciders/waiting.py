"""The number of requests that wait for one person, the same in the badge, the overview and the inbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AnonymousUser, User

from coordinator.identity.roles import APPROVER, has_role
from coordinator.models import PermissionRequest, RequestSnooze
from coordinator.models.permissions import PermissionRequestQuerySet
from coordinator.policy.deciders import decider_book as deciders


@dataclass(frozen=True, slots=True)
class WaitingForPerson:
    """The requests that a person's inbox shows, and how many others wait.

    Args:
        requests: what the inbox shows: what the person may decide, or everything for a person who only reads.
        snoozed: how many of what they may decide they have snoozed.
        returns_at: when the first snoozed one is back; None if there is none.
        is_shared: whether everybody sees the same requests.
    """

    requests: PermissionRequestQuerySet
    snoozed: int
    returns_at: datetime | None
    is_shared: bool

    @property
    def waiting_count(self) -> int:
        return self.requests.count()


def load_waiting_and_snoozed_requests(
    person: User | AnonymousUser, now: datetime, *, book: deciders.DeciderBook | None = None
) -> WaitingForPerson:
    """Return what waits for the person at `now`, without what they snoozed."""
    waiting = PermissionRequest.objects.awaiting_decision(now)
    book = book or deciders.load_decider_book(now)
    decidable = (
        deciders.decidable_request_ids_unless_all(person, book) if has_role(person, APPROVER) else None
    )
    is_shared = decidable is None and not book.differs_by_person
    if decidable is not None:
        waiting = waiting.filter(pk__in=decidable)
    snoozed_until = load_snooze_ends_by_request(person.get_username(), now)
    if not snoozed_until:
        return WaitingForPerson(waiting, 0, None, is_shared)
    snoozed = set(waiting.filter(request_id__in=snoozed_until).values_list("request_id", flat=True))
    return WaitingForPerson(
        waiting.exclude(request_id__in=snoozed),
        len(snoozed),
        min((until for name, until in snoozed_until.items() if name in snoozed), default=None),
        is_shared and not snoozed,
    )


def load_snooze_ends_by_request(person: str, now: datetime) -> dict[str, datetime]:
    """Return until when this person has snoozed requests, by the requests' ids."""
    rows = RequestSnooze.objects.filter(person=person).values_list("request_id", "until")
    return {str(name): until for name, until in rows if isinstance(until, datetime) and until > now}


def is_anything_snoozed(now: datetime) -> bool:
    """Say whether somebody's inbox leaves out a request that waits."""
    return RequestSnooze.objects.filter(
        request__in=PermissionRequest.objects.awaiting_decision(now), until__gt=now
    ).exists()
