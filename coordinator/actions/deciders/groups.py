"""Groups of people who decide: Django groups that are not roles, managed by administrators."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction

from coordinator.actions.audit import audit
from coordinator.actions.deciders.rights_version import bump_decision_rights_version
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.identity.roles import ROLES
from coordinator.lib import row_versions
from coordinator.models import EscalationStep
from coordinator.policy.deciders import decider_book as deciders

LONGEST_NAME = 150
MOST_GROUPS = 100


def compute_group_version(group: Group) -> str:
    """Return the version that an editor of the group has seen."""
    return row_versions.hash_column_values_as_version([group.name, *list_group_usernames(group)])


def add_decider_group(name: str, people: Collection[int], *, actor: Actor, now: datetime) -> Group:
    """Make a group of these people (ids).

    Raises UnprocessableRequest for a bad name or nobody's id, Conflict for a name in use.
    """
    name = normalize_group_name(name)
    members = require_users_by_ids(people)
    try:
        with transaction.atomic():
            bump_decision_rights_version()
            if Group.objects.exclude(name__in=ROLES).count() >= MOST_GROUPS:
                raise Conflict(
                    f"There are {MOST_GROUPS} groups already, which is the limit. Delete one first."
                )
            group = Group.objects.create(name=name)
            group.user_set.set(members)
            record_group_event(
                "DECIDERS_GROUP_MADE", group, {"after": describe_group_for_audit(group)}, actor, now
            )
    except IntegrityError:
        raise Conflict(f"A group {name!r} already exists.") from None
    return group


def update_decider_group(
    group_id: int, name: str, people: Collection[int], *, seen_version: str, actor: Actor, now: datetime
) -> Group:
    """Give a group this name and these people.

    Raises NotFound, UnprocessableRequest, and Conflict for a stale version.
    """
    name, members = normalize_group_name(name), require_users_by_ids(people)
    try:
        with transaction.atomic():
            bump_decision_rights_version()
            group = get_decider_group(group_id)
            row_versions.require_current_version(
                compute_group_version(group), seen_version, f"The group {group.name}"
            )
            before = describe_group_for_audit(group)
            group.name = name
            group.save(update_fields=["name"])
            group.user_set.set(members)
            after = describe_group_for_audit(group)
            if before != after:
                record_group_event(
                    "DECIDERS_GROUP_CHANGED", group, {"before": before, "after": after}, actor, now
                )
    except IntegrityError:
        raise Conflict(f"A group {name!r} already exists.") from None
    return group


def remove_decider_group(group_id: int, *, actor: Actor, now: datetime) -> None:
    """Delete a group that no row and no step of escalation names. Raises NotFound and Conflict."""
    with transaction.atomic():
        bump_decision_rights_version()
        group = get_decider_group(group_id)
        naming = [
            str(rule.number) for rule in deciders.load_decider_book(now).rules if group_id in rule.groups
        ]
        if naming:
            raise Conflict(
                f"Row {', '.join(naming)} of Who decides uses the group {group.name}. Change that row "
                "first: without the group nobody could decide there."
            )
        minutes = EscalationStep.objects.filter(group_id=group_id).values_list("after_minutes", flat=True)
        if minutes:
            steps = ", ".join(f"after {delay} minutes" for delay in minutes)
            raise Conflict(
                f"Escalation notifies the group {group.name} {steps}. Remove that step first, or it "
                "would be deleted with the group."
            )
        record_group_event(
            "DECIDERS_GROUP_DELETED", group, {"before": describe_group_for_audit(group)}, actor, now
        )
        group.delete()


def get_decider_group(group_id: int) -> Group:
    group = Group.objects.exclude(name__in=ROLES).filter(pk=group_id).first()
    if group is None:
        raise NotFound("This group no longer exists.")
    return group


def normalize_group_name(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > LONGEST_NAME or "\x00" in name:
        raise UnprocessableRequest(f"A group needs a name of at most {LONGEST_NAME} characters.")
    if name.lower() in ROLES:
        raise UnprocessableRequest(f"{name!r} is a role. Give the group another name.")
    return name


def require_users_by_ids(ids: Collection[int]) -> list[User]:
    people = list(User.objects.filter(pk__in=ids))
    if len(people) != len(set(ids)):
        raise UnprocessableRequest("One of the chosen people no longer exists. Reload the page.")
    return people


def list_group_usernames(group: Group) -> list[str]:
    return list(group.user_set.order_by("username").values_list("username", flat=True))


def describe_group_for_audit(group: Group) -> dict[str, Any]:
    return {"name": group.name, "people": list_group_usernames(group)}


def record_group_event(
    event: str, group: Group, metadata: dict[str, Any], actor: Actor, now: datetime
) -> None:
    audit.record_audit_entry(
        event, actor=actor, target=group.name, result="success", metadata=metadata, now=now
    )
