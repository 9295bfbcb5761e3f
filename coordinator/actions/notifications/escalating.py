"""Escalation: who is told when nobody has closed a request in time. Admins make the steps; housekeeping takes them."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Exists, OuterRef

from coordinator.actions import audit
from coordinator.actions.notifications.announcing import enqueue
from coordinator.errors import Conflict, Forbidden, Invalid, NotFound
from coordinator.identity.actors import person as person_actor
from coordinator.identity.actors import system
from coordinator.identity.roles import ADMIN, APPROVER, has_role
from coordinator.models import (
    Escalation,
    EscalationStep,
    Notification,
    NotificationTarget,
    PermissionContext,
    PermissionRequest,
)
from coordinator.notifications import hearing, recipients
from coordinator.policy import approvals

MOST_STEPS = 20
LONGEST = 24 * 60  # minutes
MOST_AT_ONCE = 200  # requests of one step in one turn


def add_step(*, by: User, after_minutes: int, whom: str, now: datetime) -> EscalationStep:
    """Add a step for requests that are asked from now on. `whom` is `group:ID` or `person:NAME`.

    Raises Forbidden for anyone but an admin, Invalid, and Conflict for a step that is there already.
    """
    _require_admin(by)
    if not 0 <= after_minutes <= LONGEST:
        raise Invalid(f"Choose 0 to {LONGEST} minutes after the request.")
    group, person = _whom(whom)
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
            created_by=by.get_username(),
        )
        _record("ESCALATION_STEP_ADDED", step, by, now)
    return step


def remove_step(step_id: int, *, by: User, now: datetime) -> None:
    """Remove a step. Raises Forbidden for anyone but an admin, and NotFound."""
    _require_admin(by)
    with transaction.atomic():
        step = EscalationStep.objects.select_for_update().filter(pk=step_id).first()
        if step is None:
            raise NotFound("This step was already removed.")
        _record("ESCALATION_STEP_REMOVED", step, by, now)
        EscalationStep.objects.filter(pk=step.pk).delete()


def escalate_due(now: datetime) -> int:
    """Take every step whose time has come for a request that still waits; return how many. Any process may."""
    steps = list(EscalationStep.objects.select_related("group").filter(after_minutes__gt=0))
    return sum(_take(request_id, step, now) for step in steps for request_id in _late(step, now))


def _late(step: EscalationStep, now: datetime) -> list[str]:
    """Return the requests that a step is due for: asked since the step was made, and waiting for so long."""
    taken = Escalation.objects.filter(request_id=OuterRef("request_id"), step=step)
    late = PermissionRequest.objects.waiting(now).filter(
        ~Exists(taken),
        created_at__gte=step.created_at,
        created_at__lte=now - timedelta(minutes=step.after_minutes),
    )
    return list(late.order_by("id").values_list("request_id", flat=True)[:MOST_AT_ONCE])


def _take(request_id: str, step: EscalationStep, now: datetime) -> bool:
    """Take one step for one request, once: the row is held, so that neither a decision nor another process is in it."""
    with transaction.atomic():
        row = PermissionRequest.objects.select_for_update().filter(request_id=request_id).first()
        if row is None or not approvals.standing(row, now).waiting:
            return False
        if not EscalationStep.objects.filter(pk=step.pk).exists():
            return False
        if Escalation.objects.filter(request=row, step=step).exists():
            return False
        if (context := PermissionContext.objects.filter(request=row).first()) is not None:
            row.context = context
        people = recipients.of_step(step, row, now)
        targets = hearing.of_request(
            NotificationTarget.objects.reachable().filter(person__in=people).order_by("id"), row
        )
        count = enqueue(targets, row, Notification.Event.ESCALATED, now)
        Escalation.objects.create(request=row, step=step, at=now, messages=count)
        audit.record(
            "PERMISSION_REQUEST_ESCALATED",
            actor=system("housekeeping"),
            target=row.request_id,
            permission=row.permission_type,
            result="success",
            metadata={**described(step), "messages": count},
            now=now,
        )
    return True


def _whom(text: str) -> tuple[Group | None, str | None]:
    kind, _, name = text.partition(":")
    if kind == "group" and name.isdecimal() and len(name) < 10:
        group = Group.objects.filter(pk=int(name)).first()
        if group is not None:
            return group, None
    if kind == "person" and "\x00" not in name:
        user = User.objects.filter(username=name, is_active=True).first()
        if user is not None and has_role(user, APPROVER):
            return None, user.get_username()
        raise Invalid("This person may not decide requests. Choose someone who may.")
    raise Invalid("Choose a group or a person to notify.")


def _require_admin(by: User) -> None:
    if not has_role(by, ADMIN):
        raise Forbidden("You need the role admin to change escalation steps.")


def described(step: EscalationStep) -> dict[str, object]:
    """Return what an audit entry says of a step."""
    whom = {"group": step.group.name} if step.group else {"person": step.person}
    return {"after_minutes": step.after_minutes, **whom}


def _record(event: str, step: EscalationStep, by: User, now: datetime) -> None:
    audit.record(
        event,
        actor=person_actor(by),
        target=f"escalation_step:{step.pk}",
        result="success",
        metadata=described(step),
        now=now,
    )
