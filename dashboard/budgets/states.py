"""The current state of budgets, as pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from django.db.models import Sum

from coordinator.models import Session
from coordinator.models.budgets import BudgetMeasure
from coordinator.policy.limits import budgets
from coordinator.policy.limits.budgets import BudgetRow, BudgetState

MOST_SESSIONS = 3  # of a budget for each session: the sessions that used the most today
MOST_LOOKED_AT = 50


def list_current_budget_states(now: datetime) -> list[tuple[BudgetRow, list[BudgetState]]]:
    """Return each budget in force with its states.

    A budget for each session has a state for each of the sessions that used the most; any other has one
    state.
    """
    return [(budget, load_budget_states(budget, now)) for budget in budgets.load_active_budgets()]


def load_budget_states(budget: BudgetRow, now: datetime) -> list[BudgetState]:
    if budget.is_limit_per_session:
        rows = budgets.budget_usage_rows(budget, now).order_by().values("session_id")
        tokens = Sum("input_tokens") + Sum("output_tokens") + Sum("calls")
        busiest = rows.annotate(most=tokens).order_by("-most").values_list("session_id", flat=True)
        sessions = [
            budgets.current_budget_state(budget, now, session_id) for session_id in busiest[:MOST_LOOKED_AT]
        ]
        return sorted(sessions, key=lambda one: -one.used_fraction)[:MOST_SESSIONS]
    current_budget_state = budgets.current_budget_state(budget, now)
    current_budget_state = replace(
        current_budget_state, forecast=budgets.forecast_budget_or_none(current_budget_state, now)
    )
    if budget.measure == BudgetMeasure.CALLS:
        return [current_budget_state]
    return [
        replace(
            current_budget_state,
            silent=budgets.count_sessions_without_tokens(budgets.budget_usage_rows(budget, now)),
        )
    ]


def load_session_budgets_near_limit(session: Session, now: datetime) -> Sequence[BudgetState]:
    """Return the state of each budget that applies to the session and is used to 80 percent or more."""
    in_force = budgets.load_active_budgets()
    if not in_force:
        return []
    names = budgets.load_session_agent_and_programs(session.pk)
    concerned = [budget_state for budget_state in in_force if budget_state.can_apply_to_agents(names)]
    return [
        state
        for state in budgets.load_session_budget_states(concerned, names, session.pk, now)
        if state.is_near_limit
    ]
