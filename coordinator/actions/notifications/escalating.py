"""Escalation of open requests: admins set the steps of who is notified when; housekeeping carries them out."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Exists, OuterRef

from coordinator.actions.audit import audit
from coordinator.actions.notifications.announcing import enqueue_request_notifications
from coordinator.errors import Conflict, Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import person_actor, system_actor
from coordinator.identity.roles import ADMIN, APPROVER, has_role
from coordinator.models import (
    Escalation,
    EscalationStep,
    Notification,
    NotificationTarget,
    PermissionContext,
    PermissionRequest,
)
from coordinator.notifications import filters as hearing
from coordinator.notifications import recipients
from coordinator.policy.requests import approvals

MOST_STEPS = 20
LONGEST = 24 * 60  # minutes
MOST_AT_ONCE = 200  # requests of one step in one turn


def create_escalation_step(*, user: User, after_minutes: int, whom: str, now: datetime) -> EscalationStep:
    """Add a step for requests that are asked from now on. `whom` is `group:ID` or `person:NAME`.

    Raises Forbidden for anyone but an admin, UnprocessableRequest, and Conflict for a step that is there already.
    """
    require_escalation_admin(user)
    if not 0 <= after_minutes <= LONGEST:
        raise UnprocessableRequest(f"Choose 0 to {LONGEST} minutes after the request.")
    group, person = parse_escalation_target(whom)
    with transaction.atomic():
        if EscalationStep.objects.count() >= MOST_STEPS:
            raise Conflict(f"There may be at most {MOST_STEPS} steps. Remove one first.")
        if EscalationStep.objects.filter(after_minutes=after_minutes, group=group, person=person).exists():
            raise Conflict("This step is already on the list.")
        step = EscalationStep.objects.create(
            after_minutes=after_minutes,
            group=group,
            person=person,
            created_at=now,
            created_by=user.get_username(),
        )
        record_escalation_change("ESCALATION_STEP_ADDED", step, user, now)
    return step


def remove_escalation_step(step_id: int, *, user: User, now: datetime) -> None:
    """Remove a step. Raises Forbidden for anyone but an admin, and NotFound."""
    require_escalation_admin(user)
    with transaction.atomic():
        step = EscalationStep.objects.select_for_update().filter(pk=step_id).first()
        if step is None:
            raise NotFound("This step was already removed.")
        record_escalation_change("ESCALATION_STEP_REMOVED", step, user, now)
        EscalationStep.objects.filter(pk=step.pk).delete()


def escalate_due_requests(now: datetime) -> int:
    """Take every step whose time has come for a request that still waits; return how many. Any process may."""
    steps = list(EscalationStep.objects.select_related("group").filter(after_minutes__gt=0))
    return sum(
        execute_escalation_step(request_id, step, now)
        for step in steps
        for request_id in find_overdue_request_ids(step, now)
    )


def find_overdue_request_ids(step: EscalationStep, now: datetime) -> list[str]:
    """Return the requests that a step is due for: asked since the step was made, and waiting for so long."""
    taken_steps = Escalation.objects.filter(request_id=OuterRef("request_id"), step=step)
    late = PermissionRequest.objects.awaiting_decision(now).filter(
        ~Exists(taken_steps),
        created_at__gte=step.created_at,
        created_at__lte=now - timedelta(minutes=step.after_minutes),
    )
    return list(late.order_by("id").values_list("request_id", flat=True)[:MOST_AT_ONCE])


def execute_escalation_step(request_id: str, step: EscalationStep, now: datetime) -> bool:
    """Take one step for one request, once: the row is held, so that neither a decision nor another process is in it."""
    with transaction.atomic():
        row = PermissionRequest.objects.select_for_update().filter(request_id=request_id).first()
        if row is None or not approvals.current_request_state(row, now).waiting:
            return False
        if not EscalationStep.objects.filter(pk=step.pk).exists():
            return False
        if Escalation.objects.filter(request=row, step=step).exists():
            return False
        if (context := PermissionContext.objects.filter(request=row).first()) is not None:
            row.context = context
        people = recipients.escalation_step_recipient_usernames(step, row, now)
        targets = hearing.filter_targets_for_request(
            NotificationTarget.objects.without_ended_devices().filter(person__in=people).order_by("id"), row
        )
        count = enqueue_request_notifications(targets, row, Notification.NotifiedEvent.ESCALATED, now)
        Escalation.objects.create(request=row, step=step, at=now, messages=count)
        audit.record_audit_entry(
            "PERMISSION_REQUEST_ESCALATED",
            actor=system_actor("housekeeping"),
            target=row.request_id,
            permission=row.permission_type,
            result="success",
            metadata={**serialize_escalation_step_for_audit(step), "messages": count},
            now=now,
        )
    return True


def parse_escalation_target(text: str) -> tuple[Group | None, str | None]:
    kind, _, name = text.partition(":")
    if kind == "group" and name.isdecimal() and len(name) < 10:
        group = Group.objects.filter(pk=int(name)).first()
        if group is not None:
            return group, None
    if kind == "person" and "\x00" not in name:
        user = User.objects.filter(username=name, is_active=True).first()
        if user is not None and has_role(user, APPROVER):
            return None, user.get_username()
        raise UnprocessableRequest("This person may not decide requests. Choose someone who may.")
    raise UnprocessableRequest("Choose a group or a person to notify.")


def require_escalation_admin(user: User) -> None:
    if not has_role(user, ADMIN):
        raise Forbidden("You need the role admin to change escalation steps.")


def serialize_escalation_step_for_audit(step: EscalationStep) -> dict[str, object]:
    """Return what an audit entry says of a step."""
    whom = {"group": step.group.name} if step.group else {"person": step.person}
    return {"after_minutes": step.after_minutes, **whom}


def record_escalation_change(event: str, step: EscalationStep, user: User, now: datetime) -> None:
    audit.record_audit_entry(
        event,
        actor=person_actor(user),
        target=f"escalation_step:{step.pk}",
        result="success",
        metadata=serialize_escalation_step_for_audit(step),
        now=now,
    )
