"""Budgets, raises of them for a day, and records of levels that they reach. Only people set them."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Max

from coordinator.actions import notifications
from coordinator.actions.audit import audit
from coordinator.errors import BadRequest, Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, system_actor
from coordinator.lib import instants, row_versions
from coordinator.models import Budget, BudgetMark, UsageDay
from coordinator.models.budgets import AtLimit, BudgetMeasure, BudgetReach, BudgetSpan
from coordinator.policy.limits import budgets
from coordinator.policy.limits.budgets import LEVELS, USED_UP, BudgetRow, BudgetState

log = logging.getLogger(__name__)

LONGEST_NAME = 255
MOST_BUDGETS = 100  # in force at a time
MOST_SESSIONS = 200  # of one budget that are reported at a time
LARGEST = 1e15
USAGE_RETENTION_DAYS = 400
BY = system_actor("budgets")
EDITABLE = ("amount", "at_limit")


def create_budget(
    reach: str,
    name: str,
    span: str,
    measure: str,
    *,
    amount: float,
    at_limit: str,
    actor: Actor,
    now: datetime,
) -> Budget:
    """Set a budget from now on. Raises UnprocessableRequest, and Conflict where there are too many."""
    budget_row = BudgetRow(0, reach, name.strip(), span, measure, amount, at_limit)
    require_budget_editor(actor)
    validate_budget(budget_row)
    with transaction.atomic():
        if Budget.objects.filter(ended_at__isnull=True).count() >= MOST_BUDGETS:
            raise Conflict(f"There are already {MOST_BUDGETS} budgets, which is the limit. Remove one first.")
        budget = Budget.objects.create(**budget_columns(budget_row), changed_at=now, changed_by=str(actor))
        audit_budget_event("BUDGET_SET", budget.pk, actor, now, after=budget_columns(budget_row))
    return budget


def compute_budget_version(row: Budget) -> str:
    """Return the version that an editor of this budget has seen."""
    return row_versions.hash_row_fields_as_version(row, EDITABLE)


def update_budget(
    budget_id: int,
    *,
    amount: float,
    at_limit: str,
    actor: Actor,
    now: datetime,
    seen_version: str | None = None,
) -> None:
    """Raise or lower a budget, or change what happens once it is used up.

    `seen_version` is the version that the editor started from, where there is an editor.

    Raises NotFound, UnprocessableRequest, and Conflict where somebody else changed the budget meanwhile.
    """
    require_budget_editor(actor)
    with transaction.atomic():
        row = lock_budget(budget_id)
        row_versions.require_current_version(compute_budget_version(row), seen_version, "The budget")
        before = budgets.convert_budget_row(row)
        after = BudgetRow(before.id, before.reach, before.name, before.span, before.measure, amount, at_limit)
        validate_budget(after)
        Budget.objects.filter(pk=budget_id).update(
            amount=amount, at_limit=at_limit, changed_at=now, changed_by=str(actor)
        )
        if amount != before.amount:
            BudgetMark.objects.filter(budget_id=budget_id).delete()  # the new amount is reported again
        audit_budget_event(
            "BUDGET_CHANGED",
            budget_id,
            actor,
            now,
            before=budget_columns(before),
            after=budget_columns(after),
        )


def suspend_budget_for_today(budget_id: int, *, actor: Actor, now: datetime) -> datetime:
    """Let a budget hold nothing up until the day ends; return when that is. Raises NotFound."""
    require_budget_editor(actor)
    until = budgets.end_of_today(now)
    with transaction.atomic():
        lock_budget(budget_id)
        Budget.objects.filter(pk=budget_id).update(allowed_until=until, allowed_by=str(actor))
        audit_budget_event(
            "BUDGET_ALLOWED_TODAY", budget_id, actor, now, until=instants.format_canonical_instant(until)
        )
    return until


def end_budget(budget_id: int, *, actor: Actor, now: datetime) -> None:
    """End a budget. Raises NotFound."""
    require_budget_editor(actor)
    with transaction.atomic():
        before = budgets.convert_budget_row(lock_budget(budget_id))
        Budget.objects.filter(pk=budget_id).update(ended_at=now, changed_at=now, changed_by=str(actor))
        audit_budget_event("BUDGET_REMOVED", budget_id, actor, now, before=budget_columns(before))


def end_person_budgets(name: str, *, actor: Actor, now: datetime) -> None:
    """End the budgets of a person who is being deleted, in the transaction of the deletion."""
    for row in Budget.objects.filter(reach=BudgetReach.PERSON, name=name, ended_at__isnull=True).order_by(
        "id"
    ):
        before = budget_columns(budgets.convert_budget_row(row))
        Budget.objects.filter(pk=row.pk).update(ended_at=now, changed_at=now, changed_by=str(actor))
        audit_budget_event("BUDGET_REMOVED", row.pk, actor, now, before=before, person_deleted=name)


def record_reached_budgets(now: datetime) -> None:
    """Note which budgets have come to 80 or 100 percent since the last time: once a period or session."""
    for budget in budgets.load_active_budgets():
        for current_budget_state in load_states_of_budget(budget, now):
            reached = [level for level in LEVELS if current_budget_state.used_percent >= level]
            for level in reached:
                record_reached_budget_level(
                    current_budget_state, level, now, should_notify=level == reached[-1]
                )


def delete_old_budget_usage(now: datetime) -> None:
    """Drop sums and notes of long ago."""
    oldest = now - timedelta(days=USAGE_RETENTION_DAYS)
    day = instants.local_iso_date_of_milliseconds(
        instants.instant_to_microseconds(oldest) // 1000, settings.LOCAL_ZONE
    )
    UsageDay.objects.filter(day__lt=day).delete()
    BudgetMark.objects.filter(at__lt=oldest).delete()


def load_states_of_budget(budget: BudgetRow, now: datetime) -> list[BudgetState]:
    if not budget.is_limit_per_session:
        return [budgets.current_budget_state(budget, now)]
    used_up_marks = BudgetMark.objects.filter(budget_id=budget.id, level=USED_UP).values("about")
    at_work = budgets.budget_usage_rows(budget, now).exclude(session_id__in=used_up_marks).order_by()
    newest = at_work.values("session_id").annotate(last=Max("id")).order_by("-last")
    ids = list(newest.values_list("session_id", flat=True)[:MOST_SESSIONS])
    return budgets.list_budget_states_of_sessions(budget, ids, now)


def record_reached_budget_level(
    state: BudgetState, level: int, now: datetime, *, should_notify: bool
) -> None:
    """Record that a level is reached, once; with `should_notify`, notify people.

    Of two levels at once, only of the higher.
    """
    about = state.session_id or budgets.current_period_iso_label(state.budget, now)
    with transaction.atomic():
        mark, is_new = BudgetMark.objects.get_or_create(
            budget_id=state.budget.id, about=about, level=level, defaults={"at": now}
        )
        if is_new:
            kind = "BUDGET_USED_UP" if level >= USED_UP else "BUDGET_NEARLY_USED"
            audit_budget_event(
                kind,
                state.budget.id,
                BY,
                now,
                about=about,
                used=state.used_amount_label,
                of=state.budget.title,
            )
            if should_notify:
                notifications.announce_budget_level(mark, now=now)


def require_budget_editor(actor: Actor) -> None:
    if actor.kind != "user":
        raise BadRequest("Only a signed-in person can set budgets.")


def validate_budget(budget: BudgetRow) -> None:
    measure_labels = {
        "reach": BudgetReach.values,
        "span": BudgetSpan.values,
        "measure": BudgetMeasure.values,
        "at_limit": AtLimit.values,
    }
    for name, label in measure_labels.items():
        if getattr(budget, name) not in label:
            raise UnprocessableRequest(f"{name} must be one of: {', '.join(label)}.")
    if (budget.reach == BudgetReach.EVERYTHING) is bool(budget.name):
        raise UnprocessableRequest(
            "Enter the name of what the budget is for. Leave it empty for a budget of everything."
        )
    if budget.reach == BudgetReach.MODEL and budget.measure == BudgetMeasure.CALLS:
        raise UnprocessableRequest("Tool calls are not counted by model. Choose tokens or money.")
    if len(budget.name) > LONGEST_NAME or "\x00" in budget.name:
        raise UnprocessableRequest(f"A name may have at most {LONGEST_NAME} characters, without NUL.")
    if not (math.isfinite(budget.amount) and 0 < budget.amount <= LARGEST):
        raise UnprocessableRequest("The amount must be a number greater than 0.")


def lock_budget(budget_id: int) -> Budget:
    budget = Budget.objects.select_for_update().filter(pk=budget_id, ended_at__isnull=True).first()
    if budget is None:
        raise NotFound("No such budget.")
    return budget


def budget_columns(budget: BudgetRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(budget).items() if name not in {"id", "allowed_until"}}


def audit_budget_event(
    event_type: str, budget_id: int, actor: Actor, now: datetime, **metadata: str | Mapping[str, Any]
) -> None:
    audit.record_audit_entry(
        event_type, actor=actor, target=f"budget:{budget_id}", result="success", metadata=metadata, now=now
    )
