"""Who is told of a request: never anybody who may not decide it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from django.contrib.auth.models import User

from coordinator.models import EscalationStep, PermissionRequest
from coordinator.policy import deciders


def at_once(request: PermissionRequest, now: datetime, reachable: Collection[str]) -> set[str]:
    """Return the names of the people who are told as soon as `request` waits; `reachable` have an address or device.

    Where steps after 0 minutes name nobody who may decide it and can be reached, everybody is told who may.
    """
    able = who_may_decide(request, now)
    return able & named(EscalationStep.objects.filter(after_minutes=0)) & set(reachable) or able


def of_step(step: EscalationStep, request: PermissionRequest, now: datetime) -> set[str]:
    """Return the names of the people whom a step tells of `request`."""
    return who_may_decide(request, now) & named([step])


def named(steps: Iterable[EscalationStep]) -> set[str]:
    """Return the names of everybody whom these steps name: the people, and the active members of the groups."""
    steps = list(steps)
    groups = [one.group_id for one in steps if one.group_id is not None]
    people = {one.person for one in steps if one.person}
    if not groups:
        return people
    members = User.objects.filter(groups__in=groups, is_active=True)
    return people | set(members.values_list("username", flat=True))


def who_may_decide(request: PermissionRequest, now: datetime) -> set[str]:
    """Return the names of everybody who may decide `request` at `now`."""
    return {user.get_username() for user in deciders.people_for(request, now=now)}
