"""Temporary delegations of one's right to decide to another approver, and their revocation."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.deciders.rights_version import bump_decision_rights_version, reload_person
from coordinator.errors import Conflict, Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import person_actor
from coordinator.identity.roles import ADMIN, APPROVER, has_role
from coordinator.lib import instants
from coordinator.models import Delegation

LONGEST = timedelta(days=90)
LONGEST_REASON = 500
MOST_DELEGATIONS = 20  # that one person has given and that are not over


def create_delegation(
    receiver_id: int,
    starts_at: datetime,
    ends_at: datetime,
    *,
    user: User,
    now: datetime,
    reason: str = "",
) -> Delegation:
    """Let the receiver decide what `by` may decide, from `starts_at` until before `ends_at`.

    Raises Forbidden for who is no approver, UnprocessableRequest for a receiver or a time that cannot be,
    Conflict for too many.
    """
    reason = " ".join(reason.split())
    validate_delegation_times(starts_at, ends_at, now)
    if len(reason) > LONGEST_REASON or "\x00" in reason:
        raise UnprocessableRequest(f"A reason has at most {LONGEST_REASON} characters.")
    with transaction.atomic():
        bump_decision_rights_version()
        if not has_role(reload_person(user), APPROVER):
            raise Forbidden("You need the role approver to delegate your right to decide.")
        receiver = User.objects.filter(pk=receiver_id).first()
        if receiver is None or not has_role(receiver, APPROVER):
            raise UnprocessableRequest("Choose an active person with the role approver.")
        if receiver.pk == user.pk:
            raise UnprocessableRequest("Choose somebody other than yourself.")
        if Delegation.objects.current_or_upcoming(now).filter(giver_id=user.pk).count() >= MOST_DELEGATIONS:
            raise Conflict(
                f"You already have {MOST_DELEGATIONS} delegations, which is the limit. End one first."
            )
        delegation = Delegation.objects.create(
            giver_id=user.pk,
            receiver_id=receiver.pk,
            starts_at=max(starts_at, now),
            ends_at=ends_at,
            reason=reason,
            made_at=now,
            made_by=str(person_actor(user)),
        )
        record_delegation_event("DELEGATION_MADE", delegation, user, now)
    return delegation


def validate_delegation_times(starts_at: datetime, ends_at: datetime, now: datetime) -> None:
    if ends_at <= max(starts_at, now):
        raise UnprocessableRequest("The end must be after the start, and in the future.")
    if ends_at > now + LONGEST:
        raise UnprocessableRequest(f"The end may be at most {LONGEST.days} days ahead.")


def cancel_delegation(delegation_id: int, *, user: User, now: datetime) -> Delegation:
    """End a delegation now: its giver may, its receiver, or an administrator. Raises NotFound, Forbidden, Conflict."""
    with transaction.atomic():
        bump_decision_rights_version()
        delegation = Delegation.objects.filter(pk=delegation_id).first()
        if delegation is None:
            raise NotFound("There is no such delegation.")
        if user.pk not in {delegation.giver_id, delegation.receiver_id} and not has_role(
            reload_person(user), ADMIN
        ):
            raise Forbidden("Only its giver, its receiver or an administrator can end a delegation.")
        delegations = Delegation.objects.current_or_upcoming(now).filter(pk=delegation.pk)
        if not delegations.update(revoked_at=now, revoked_by=str(person_actor(user))):
            raise Conflict("This delegation has already ended.")
        record_delegation_event("DELEGATION_REVOKED", delegation, user, now)
    return delegation


def delegation_usernames_by_user_id(rows: Iterable[Delegation]) -> dict[int, str]:
    """Return the names of the givers and receivers by id; of those who were deleted none."""
    ids = {person_id for row in rows for person_id in (row.giver_id, row.receiver_id)}
    return dict(User.objects.filter(pk__in=ids).values_list("pk", "username"))


def record_delegation_event(event: str, row: Delegation, user: User, now: datetime) -> None:
    names_by_id = delegation_usernames_by_user_id([row])
    audit.record_audit_entry(
        event,
        actor=person_actor(user),
        target=f"delegation:{row.pk}",
        result="success",
        reason=row.reason or None,
        metadata={
            "giver": names_by_id.get(row.giver_id),
            "receiver": names_by_id.get(row.receiver_id),
            "starts_at": format_delegation_time_for_audit(row.starts_at),
            "ends_at": format_delegation_time_for_audit(row.ends_at),
        },
        now=now,
    )


def format_delegation_time_for_audit(value: datetime | str) -> str:
    return instants.format_canonical_instant(value) if isinstance(value, datetime) else value
