"""Recipients of a request's notifications: never anybody who may not decide it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from django.contrib.auth.models import User

from coordinator.models import EscalationStep, PermissionRequest
from coordinator.policy.deciders import decider_book as deciders


def immediate_recipient_usernames(
    request: PermissionRequest, now: datetime, reachable: Collection[str]
) -> set[str]:
    """Return the names of the people notified as soon as `request` waits; `reachable` have an address or device.

    Where steps after 0 minutes name nobody who may decide it and can be reached, everybody who may is notified.
    """
    able = request_decider_names(request, now)
    return (
        able & usernames_in_escalation_steps(EscalationStep.objects.filter(after_minutes=0)) & set(reachable)
        or able
    )


def escalation_step_recipient_usernames(
    step: EscalationStep, request: PermissionRequest, now: datetime
) -> set[str]:
    """Return the names of the people whom a step notifies of `request`."""
    return request_decider_names(request, now) & usernames_in_escalation_steps([step])


def usernames_in_escalation_steps(steps: Iterable[EscalationStep]) -> set[str]:
    """Return the names of everybody whom these steps name: the people, and the active members of the groups."""
    steps = list(steps)
    groups = [step.group_id for step in steps if step.group_id is not None]
    people = {step.person for step in steps if step.person}
    if not groups:
        return people
    members = User.objects.filter(groups__in=groups, is_active=True)
    return people | set(members.values_list("username", flat=True))


def request_decider_names(request: PermissionRequest, now: datetime) -> set[str]:
    """Return the names of everybody who may decide `request` at `now`."""
    return {user.get_username() for user in deciders.load_deciders_of_request(request, now=now)}
