"""Setting budgets, allowing more for a day, and noting when one is nearly or wholly used. Only people set them."""

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

from coordinator.actions import audit, notifications
from coordinator.errors import BadRequest, Conflict, Invalid, NotFound
from coordinator.identity.actors import Actor, system
from coordinator.lib import instants
from coordinator.models import Budget, BudgetMark, UsageDay
from coordinator.models.budgets import AtLimit, BudgetMeasure, BudgetReach, BudgetSpan
from coordinator.policy import budgets
from coordinator.policy.budgets import LEVELS, USED_UP, BudgetRow, BudgetState

log = logging.getLogger(__name__)

LONGEST_NAME = 255
MOST_BUDGETS = 100  # in force at a time
MOST_SESSIONS = 200  # of one budget that are told of in one go
LARGEST = 1e15
KEPT_DAYS = 400
BY = system("budgets")


def add(
    reach: str, name: str, span: str, measure: str, *, amount: float, at_limit: str, by: Actor, now: datetime
) -> Budget:
    """Set a budget from now on. Raises Invalid, and Conflict where there are too many."""
    wanted = BudgetRow(0, reach, name.strip(), span, measure, amount, at_limit)
    _require_person(by)
    _check(wanted)
    with transaction.atomic():
        if Budget.objects.filter(ended_at__isnull=True).count() >= MOST_BUDGETS:
            raise Conflict(f"There are already {MOST_BUDGETS} budgets, which is the limit. Remove one first.")
        made = Budget.objects.create(**_columns(wanted), changed_at=now, changed_by=str(by))
        _record("BUDGET_SET", made.pk, by, now, after=_columns(wanted))
    return made


def change(budget_id: int, *, amount: float, at_limit: str, by: Actor, now: datetime) -> None:
    """Raise or lower a budget, or change what happens once it is used up. Raises NotFound and Invalid."""
    _require_person(by)
    with transaction.atomic():
        before = budgets.row_of(_locked(budget_id))
        after = BudgetRow(before.id, before.reach, before.name, before.span, before.measure, amount, at_limit)
        _check(after)
        Budget.objects.filter(pk=budget_id).update(
            amount=amount, at_limit=at_limit, changed_at=now, changed_by=str(by)
        )
        if amount != before.amount:
            BudgetMark.objects.filter(budget_id=budget_id).delete()  # the new amount is told of anew
        _record("BUDGET_CHANGED", budget_id, by, now, before=_columns(before), after=_columns(after))


def allow_today(budget_id: int, *, by: Actor, now: datetime) -> datetime:
    """Let a budget hold nothing up until the day ends; return when that is. Raises NotFound."""
    _require_person(by)
    until = budgets.end_of_today(now)
    with transaction.atomic():
        _locked(budget_id)
        Budget.objects.filter(pk=budget_id).update(allowed_until=until, allowed_by=str(by))
        _record("BUDGET_ALLOWED_TODAY", budget_id, by, now, until=instants.canonical(until))
    return until


def remove(budget_id: int, *, by: Actor, now: datetime) -> None:
    """End a budget. Raises NotFound."""
    _require_person(by)
    with transaction.atomic():
        before = budgets.row_of(_locked(budget_id))
        Budget.objects.filter(pk=budget_id).update(ended_at=now, changed_at=now, changed_by=str(by))
        _record("BUDGET_REMOVED", budget_id, by, now, before=_columns(before))


def end_of_person(name: str, *, by: Actor, now: datetime) -> None:
    """End the budgets of a person who is being deleted, in the transaction of the deletion."""
    for row in Budget.objects.filter(reach=BudgetReach.PERSON, name=name, ended_at__isnull=True).order_by(
        "id"
    ):
        before = _columns(budgets.row_of(row))
        Budget.objects.filter(pk=row.pk).update(ended_at=now, changed_at=now, changed_by=str(by))
        _record("BUDGET_REMOVED", row.pk, by, now, before=before, person_deleted=name)


def notice_due(now: datetime) -> None:
    """Note which budgets have come to 80 or 100 percent since the last time: once a day or session."""
    for budget in budgets.in_force():
        for found in _standings(budget, now):
            reached = [level for level in LEVELS if found.percent >= level]
            for level in reached:
                _mark(found, level, now, tell=level == reached[-1])


def forget_old(now: datetime) -> None:
    """Drop sums and notes of long ago."""
    oldest = now - timedelta(days=KEPT_DAYS)
    day = instants.day_of(instants.to_us(oldest) // 1000, settings.LOCAL_ZONE)
    UsageDay.objects.filter(day__lt=day).delete()
    BudgetMark.objects.filter(at__lt=oldest).delete()


def _standings(budget: BudgetRow, now: datetime) -> list[BudgetState]:
    if not budget.is_by_session:
        return [budgets.standing(budget, now)]
    told = BudgetMark.objects.filter(budget_id=budget.id, level=USED_UP).values("about")
    at_work = budgets.counted(budget, now).exclude(session_id__in=told).order_by()
    newest = at_work.values("session_id").annotate(last=Max("id")).order_by("-last")
    ids = list(newest.values_list("session_id", flat=True)[:MOST_SESSIONS])
    return budgets.states_of_sessions(budget, ids, now)


def _mark(found: BudgetState, level: int, now: datetime, *, tell: bool) -> None:
    """Note that a level is reached, once; `tell` messages people: of two levels at once, of the higher alone."""
    about = found.session_id or budgets.today(now)
    with transaction.atomic():
        mark, is_new = BudgetMark.objects.get_or_create(
            budget_id=found.budget.id, about=about, level=level, defaults={"at": now}
        )
        if is_new:
            kind = "BUDGET_USED_UP" if level >= USED_UP else "BUDGET_NEARLY_USED"
            _record(kind, found.budget.id, BY, now, about=about, used=found.used_words, of=found.budget.title)
            if tell:
                notifications.budget_reached(mark, now=now)


def _require_person(by: Actor) -> None:
    if by.kind != "user":
        raise BadRequest("Only a signed-in person can set budgets.")


def _check(wanted: BudgetRow) -> None:
    words = {
        "reach": BudgetReach.values,
        "span": BudgetSpan.values,
        "measure": BudgetMeasure.values,
        "at_limit": AtLimit.values,
    }
    for name, known in words.items():
        if getattr(wanted, name) not in known:
            raise Invalid(f"{name} must be one of: {', '.join(known)}.")
    if (wanted.reach == BudgetReach.EVERYTHING) is bool(wanted.name):
        raise Invalid("Enter the agent or person. Leave the name empty for a budget of everything.")
    if len(wanted.name) > LONGEST_NAME or "\x00" in wanted.name:
        raise Invalid(f"A name may have at most {LONGEST_NAME} characters, without NUL.")
    if not (math.isfinite(wanted.amount) and 0 < wanted.amount <= LARGEST):
        raise Invalid("The amount must be a number greater than 0.")


def _locked(budget_id: int) -> Budget:
    found = Budget.objects.select_for_update().filter(pk=budget_id, ended_at__isnull=True).first()
    if found is None:
        raise NotFound("No such budget.")
    return found


def _columns(budget: BudgetRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(budget).items() if name not in {"id", "allowed_until"}}


def _record(
    event_type: str, budget_id: int, by: Actor, now: datetime, **metadata: str | Mapping[str, Any]
) -> None:
    audit.record(
        event_type, actor=by, target=f"budget:{budget_id}", result="success", metadata=metadata, now=now
    )
