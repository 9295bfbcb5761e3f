"""Notification rows stored under a person's name: renamed with the person, deleted with an unused name."""

from __future__ import annotations

from datetime import datetime

from coordinator.actions.audit import audit
from coordinator.actions.notifications import addresses, escalating
from coordinator.identity.actors import Actor
from coordinator.models import EscalationStep, NotificationChoice, NotificationTarget, QuietHours

NOBODY = "No account has this name any more."


def delete_notification_settings_of_person(name: str, *, actor: Actor, now: datetime | None) -> None:
    """Remove what is stored for an unused name: addresses, devices, quiet hours, and escalation steps to it.

    Call it in the transaction that frees the name, or gives it to another person.
    """
    for target in NotificationTarget.objects.filter(person=name).order_by("id"):
        removed = {"person": name, **addresses.serialize_address_for_audit(target)}
        record_name_removal("NOTIFICATION_TARGET_REMOVED", f"notification:{target.pk}", removed, actor, now)
        NotificationTarget.objects.filter(pk=target.pk).delete()
    if QuietHours.objects.filter(pk=name).delete()[0]:
        record_name_removal("QUIET_HOURS_CLEARED", name, {}, actor, now)
    NotificationChoice.objects.filter(pk=name).delete()
    for step in EscalationStep.objects.filter(person=name):
        escalation_step_text = escalating.serialize_escalation_step_for_audit(step)
        record_name_removal(
            "ESCALATION_STEP_REMOVED", f"escalation_step:{step.pk}", escalation_step_text, actor, now
        )
        EscalationStep.objects.filter(pk=step.pk).delete()


def move_notification_settings_to_name(
    before: str, after: str, *, actor: Actor, now: datetime | None
) -> None:
    """Let all that follow a person to a new name. Call it in the transaction that gives the name."""
    delete_notification_settings_of_person(after, actor=actor, now=now)  # left by another who had it
    NotificationTarget.objects.filter(person=before).update(person=after)
    QuietHours.objects.filter(pk=before).update(person=after)
    NotificationChoice.objects.filter(pk=before).update(person=after)
    EscalationStep.objects.filter(person=before).update(person=after)


def record_name_removal(
    event: str, target: str, metadata: dict[str, object], actor: Actor, now: datetime | None
) -> None:
    audit.record_audit_entry(
        event, actor=actor, target=target, result="success", reason=NOBODY, metadata=metadata or None, now=now
    )
