"""The steps of escalation as sentences, and the people and groups that a step can name."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import Group

from coordinator.identity.roles import APPROVER, ROLES, people_with_role
from coordinator.models import EscalationStep, NotificationTarget
from coordinator.notifications import recipients


@dataclass(frozen=True, slots=True)
class EscalationStepLine:
    """A step of escalation as a sentence."""

    row: EscalationStep
    when: str
    whom: str
    is_reachable: bool  # whether at least one recipient has an address and may decide requests


def list_escalation_steps() -> list[EscalationStepLine]:
    """Return the steps of escalation, those with the shortest delay first."""
    rows = list(EscalationStep.objects.select_related("group"))
    reachable = NotificationTarget.objects.without_ended_devices().values("person")
    able = people_with_role(APPROVER).filter(username__in=reachable).values_list("username", flat=True)
    hearing = set(able) if rows else set()
    return [
        EscalationStepLine(
            row,
            describe_step_delay(row.after_minutes),
            describe_step_recipient(row),
            bool(recipients.usernames_in_escalation_steps([row]) & hearing),
        )
        for row in rows
    ]


def describe_step_delay(minutes: int) -> str:
    if minutes == 0:
        return "At once"
    return f"After {minutes} minute{'s' if minutes != 1 else ''}, if nobody has decided"


def describe_step_recipient(row: EscalationStep) -> str:
    return f"the group {row.group.name}" if row.group else str(row.person)


def list_escalation_recipient_choices() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the groups and approvers that a step can notify, as option groups of values and labels."""
    groups = Group.objects.exclude(name__in=ROLES).order_by("name")
    people = people_with_role(APPROVER).order_by("username")
    return [
        ("Groups", [(f"group:{group.pk}", group.name) for group in groups]),
        (
            "People",
            [(f"person:{recipient.get_username()}", recipient.get_username()) for recipient in people],
        ),
    ]
