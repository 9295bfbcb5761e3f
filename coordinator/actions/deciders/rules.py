"""Saving of the rows of "Who decides": the whole list at once, in the order that its editor saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.deciders.rights_version import bump_decision_rights_version
from coordinator.errors import Conflict, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import DecidingRule, PermissionContext, PermissionRequest
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.deciders import rules as deciding_rules
from coordinator.policy.deciders.decider_book import DeciderBook
from coordinator.policy.deciders.rules import DecidingRuleRow

CHANGED_MEANWHILE = (
    "Somebody else has saved who decides since you opened this page. Nothing was changed. Reload the page."
)


def replace_deciding_rules(
    rows: Sequence[DecidingRuleRow], *, seen_version: str, actor: Actor, now: datetime
) -> None:
    """Put `wanted` in place of the saved rows. `seen` is the version that the editor started from.

    What waits already needs as many people as the new rows say, or as many as before where that is more.
    Raises UnprocessableRequest for a row that cannot be followed, Conflict where somebody else saved meanwhile.
    """
    if len(rows) > deciding_rules.MOST_RULES:
        raise UnprocessableRequest(f"There may be at most {deciding_rules.MOST_RULES} rows.")
    for rule in rows:
        deciding_rules.require_valid_approver_rule(rule)
    with transaction.atomic():
        bump_decision_rights_version()
        before = deciders.load_decider_book(now)
        if deciding_rules.deciding_rules_version(before.rules) != seen_version:
            raise Conflict(CHANGED_MEANWHILE)
        if deciding_rules.deciding_rules_version(rows) == seen_version:
            return
        require_existing_deciders(rows, before)
        DecidingRule.objects.all().delete()
        DecidingRule.objects.bulk_create([build_deciding_rule(rule, actor, now) for rule in rows])
        after = deciders.load_decider_book(now)
        set_two_votes_on_requests(after)
        audit.record_audit_entry(
            "DECIDING_RULES_SAVED",
            actor=actor,
            target="deciding_rules",
            result="success",
            metadata={
                "before": serialize_deciding_rules_for_audit(before),
                "after": serialize_deciding_rules_for_audit(after),
            },
            now=now,
        )


def require_existing_deciders(rows: Sequence[DecidingRuleRow], before: DeciderBook) -> None:
    """Raise UnprocessableRequest for a person or group that there is not; rows keep those who were deleted since."""
    existing_people = {person_id for rule in before.rules for person_id in rule.people}
    existing_groups = {group_id for rule in before.rules for group_id in rule.groups}
    for rule in rows:
        people = set(rule.people) - existing_people
        if people - set(User.objects.filter(pk__in=people).values_list("pk", flat=True)):
            raise UnprocessableRequest(f"Row {rule.number} names a person who does not exist.")
        if set(rule.groups) - existing_groups - before.group_names_by_id.keys():
            raise UnprocessableRequest(f"Row {rule.number} names a group that does not exist, or a role.")


def set_two_votes_on_requests(book: DeciderBook) -> None:
    stricter = [
        row
        for row in deciders.iterate_requests_without_inputs(
            PermissionRequest.objects.awaiting_decision(book.now).filter(context__needed=1)
        )
        if (rule := book.find_deciding_rule(row)) is not None and rule.needed > 1
    ]
    PermissionContext.objects.filter(request__in=stricter).update(needed=2)


def serialize_deciding_rules_for_audit(book: DeciderBook) -> list[dict[str, Any]]:
    """Return rows as the audit log keeps them: with the names of the people and groups."""
    people_by_id = dict(User.objects.in_bulk({person_id for rule in book.rules for person_id in rule.people}))
    return [
        asdict(rule)
        | {
            "groups": [
                {"id": group_id, "name": book.group_names_by_id.get(group_id)} for group_id in rule.groups
            ],
            "people": [
                {
                    "id": person_id,
                    "name": people_by_id[person_id].get_username() if person_id in people_by_id else None,
                }
                for person_id in rule.people
            ],
        }
        for rule in book.rules
    ]


def build_deciding_rule(rule: DecidingRuleRow, actor: Actor, now: datetime) -> DecidingRule:
    return DecidingRule(
        position=rule.number,
        **{name: getattr(rule, name) for name in deciding_rules.TERMS},
        groups=list(rule.groups),
        people=list(rule.people),
        needed=rule.needed,
        changed_at=now,
        changed_by=str(actor),
    )
