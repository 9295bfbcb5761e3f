"""Groups of people who decide: Django's groups that are no roles, made and filled by administrators."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction

from coordinator.actions import audit
from coordinator.actions.deciders.standing import changed
from coordinator.errors import Conflict, Invalid, NotFound
from coordinator.identity.actors import Actor
from coordinator.identity.roles import ROLES
from coordinator.lib import versions
from coordinator.models import EscalationStep
from coordinator.policy import deciders

LONGEST_NAME = 150
MOST_GROUPS = 100


def version_of(group: Group) -> str:
    """Return the version that an editor of the group has seen."""
    return versions.of_values([group.name, *_members(group)])


def make(name: str, people: Collection[int], *, by: Actor, now: datetime) -> Group:
    """Make a group of these people (ids). Raises Invalid for a bad name or nobody's id, Conflict for a name in use."""
    name = _sound(name)
    members = _people(people)
    try:
        with transaction.atomic():
            changed()
            if Group.objects.exclude(name__in=ROLES).count() >= MOST_GROUPS:
                raise Conflict(
                    f"There are {MOST_GROUPS} groups already, which is the limit. Delete one first."
                )
            group = Group.objects.create(name=name)
            group.user_set.set(members)
            _record("DECIDERS_GROUP_MADE", group, {"after": _told(group)}, by, now)
    except IntegrityError:
        raise Conflict(f"A group {name!r} already exists.") from None
    return group


def change(
    group_id: int, name: str, people: Collection[int], *, seen: str, by: Actor, now: datetime
) -> Group:
    """Give a group this name and these people. Raises NotFound, Invalid, and Conflict for a stale version."""
    name, members = _sound(name), _people(people)
    try:
        with transaction.atomic():
            changed()
            group = _found(group_id)
            versions.require_unchanged(version_of(group), seen, f"The group {group.name}")
            before = _told(group)
            group.name = name
            group.save(update_fields=["name"])
            group.user_set.set(members)
            after = _told(group)
            if before != after:
                _record("DECIDERS_GROUP_CHANGED", group, {"before": before, "after": after}, by, now)
    except IntegrityError:
        raise Conflict(f"A group {name!r} already exists.") from None
    return group


def delete(group_id: int, *, by: Actor, now: datetime) -> None:
    """Delete a group that no row and no step of escalation names. Raises NotFound and Conflict."""
    with transaction.atomic():
        changed()
        group = _found(group_id)
        naming = [str(rule.number) for rule in deciders.load(now).rules if group_id in rule.groups]
        if naming:
            raise Conflict(
                f"Row {', '.join(naming)} of Who decides uses the group {group.name}. Change that row "
                "first: without the group nobody could decide there."
            )
        minutes = EscalationStep.objects.filter(group_id=group_id).values_list("after_minutes", flat=True)
        if minutes:
            steps = ", ".join(f"after {one} minutes" for one in minutes)
            raise Conflict(
                f"Escalation notifies the group {group.name} {steps}. Remove that step first, or it "
                "would be deleted with the group."
            )
        _record("DECIDERS_GROUP_DELETED", group, {"before": _told(group)}, by, now)
        group.delete()


def _found(group_id: int) -> Group:
    group = Group.objects.exclude(name__in=ROLES).filter(pk=group_id).first()
    if group is None:
        raise NotFound("This group no longer exists.")
    return group


def _sound(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > LONGEST_NAME or "\x00" in name:
        raise Invalid(f"A group needs a name of at most {LONGEST_NAME} characters.")
    if name.lower() in ROLES:
        raise Invalid(f"{name!r} is a role. Give the group another name.")
    return name


def _people(ids: Collection[int]) -> list[User]:
    found = list(User.objects.filter(pk__in=ids))
    if len(found) != len(set(ids)):
        raise Invalid("One of the chosen people no longer exists. Reload the page.")
    return found


def _members(group: Group) -> list[str]:
    return list(group.user_set.order_by("username").values_list("username", flat=True))


def _told(group: Group) -> dict[str, Any]:
    return {"name": group.name, "people": _members(group)}


def _record(event: str, group: Group, metadata: dict[str, Any], by: Actor, now: datetime) -> None:
    audit.record(event, actor=by, target=group.name, result="success", metadata=metadata, now=now)
