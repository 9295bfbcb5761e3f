"""Budgets at their exact limit, of one model, and hardly used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.actions.policy import budgets as acts
from coordinator.models import UsageDay
from coordinator.policy.limits import budgets
from tests.budgets.test_periods_and_places import ANNA, NOW, budget, session, use
from tests.people import signed_in

pytestmark = pytest.mark.django_db


def test_a_budget_that_is_hardly_used_has_a_page(monkeypatch: Any) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    one = session()
    UsageDay.objects.create(
        day="2026-11-25",
        session_id=one.pk,
        model="m",
        calls=0,
        input_tokens=1,
        output_tokens=1,
        cache_read_tokens=0,
        cache_write_tokens=0,
        cost=0.01,
    )
    acts.create_budget("everything", "", "month", "money", amount=5000, at_limit="warn", actor=ANNA, now=NOW)
    assert signed_in("viewer").get("/ui/budgets/").status_code == 200


@pytest.mark.parametrize("used", [29, 57, 58])
def test_percent_is_what_is_used(used: int) -> None:
    state = budgets.BudgetState(budget(measure="calls"), budgets.BudgetUsage(used))
    assert state.used_percent == used


def test_ten_dimes_are_a_dollar() -> None:
    amount = 0.0
    for _ in range(10):
        amount += 0.1
    state = budgets.BudgetState(replace(budget(measure="money"), amount=1.0), budgets.BudgetUsage(amount))
    assert state.used_amount_label == "$1.00"
    assert state.is_reached


def test_a_model_s_session_budget_counts_that_model_alone() -> None:
    one = session()
    use(one, 500, model="gpt-5")
    use(one, 10, model="gpt-4o")
    row = budget("model", "gpt-4o", "session")
    assert not budgets.current_budget_state(row, NOW, one.pk).is_reached
    assert not budgets.is_budget_spent_or_uncountable(row, NOW)
