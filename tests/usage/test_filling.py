"""Events of before are counted in the background: each once, budgets untouched; prices come when they are known."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection

from coordinator.actions.sessions.events import record_events
from coordinator.actions.usage import prices, usage_backfill
from coordinator.identity.actors import Actor
from coordinator.models import Event, ModelRequestUsage, Session, UsageDay, UsageFill
from coordinator.policy.limits import budgets
from coordinator.policy.limits.budgets import BudgetRow
from coordinator.sessions.events import DedupedEvent, NewEvent
from coordinator.usage.reading import sum_usage_rows, usage_backfill_share_or_none

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TOKENS = BudgetRow(1, "everything", "", "day", "tokens", 100.0, "hold")
MONEY = BudgetRow(1, "everything", "", "day", "money", 100.0, "hold")


def spend(*outputs: int, model: str = "claude-haiku-4-5") -> None:
    Session.objects.get_or_create(session_id="ses_1", defaults={"status": "running", "created_at": NOW})
    record_events(
        [
            NewEvent(
                event_type="model_request",
                session_id="ses_1",
                timestamp="",
                model=model,
                output_tokens=output,
            )
            for output in outputs
        ],
        NOW,
    )


def as_before_the_migration() -> None:
    """Leave what an older version has written: events and sums by day, without rows for requests and costs."""
    ModelRequestUsage.objects.all().delete()
    UsageDay.objects.update(cost=None, unpriced_tokens=0)
    last = Event.objects.order_by("-id").values_list("id", flat=True)[0]
    UsageFill.objects.create(next_id=last, first_id=last)


def test_events_of_before_are_counted_once_while_new_ones_come() -> None:
    spend(1, 2, 3)
    as_before_the_migration()
    spend(10)
    assert usage_backfill_share_or_none() == 0
    steps = 0
    while usage_backfill.backfill_next_slice_or_none(2) is not None:
        spend(100)
        steps += 1
        assert steps < 20
        if steps == 2:
            break
    while (
        usage_backfill.backfill_next_slice_or_none(10_000) is not None
    ):  # PostgreSQL's numbers go on from test to test
        pass
    usage = sum_usage_rows(ModelRequestUsage.objects.all())
    assert (usage.requests, usage.output) == (6, 1 + 2 + 3 + 10 + 200)
    assert usage_backfill_share_or_none() is None
    assert usage_backfill.backfill_usage_within_time_limit(NOW) == 0


def test_budgets_hold_while_events_of_before_are_counted_and_after() -> None:
    spend(10)
    as_before_the_migration()
    spend(20)
    known = (30, pytest.approx(30 * 5 / 1e6))
    for _ in range(2):
        assert (
            budgets.load_usage_of_budget(TOKENS, NOW).amount,
            budgets.load_usage_of_budget(MONEY, NOW).amount,
        ) == known
        usage_backfill.backfill_usage_within_time_limit(NOW)


def test_what_a_server_of_before_wrote_beside_the_migration_is_counted_too() -> None:
    spend(1)
    as_before_the_migration()
    spend(5)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM usage_requests")
    usage_backfill.backfill_usage_within_time_limit(NOW)
    assert sum_usage_rows(ModelRequestUsage.objects.all()).output == 6


def test_a_request_without_a_price_gets_one_when_it_is_set_and_others_keep_theirs() -> None:
    spend(1_000_000, model="nobody-knows")
    spend(1_000_000)
    assert sum_usage_rows(ModelRequestUsage.objects.all()).unpriced_tokens == 1_000_000
    assert budgets.load_usage_of_budget(MONEY, NOW).unpriced == 1_000_000
    own = dict.fromkeys(("input", "output", "cache_read", "cache_write"), 7.0)
    prices.replace_prices_pricing_unpriced_requests(
        {"nobody-knows": own, "claude-haiku-4-5": own}, actor=Actor("user", "ann"), now=NOW
    )
    usage = sum_usage_rows(ModelRequestUsage.objects.all())
    assert (usage.cost, usage.unpriced_tokens) == (12.0, 0)
    assert budgets.load_usage_of_budget(MONEY, NOW) == budgets.BudgetUsage(12.0, 0)


def test_a_session_that_is_imported_again_after_its_deletion_counts_once() -> None:
    for _ in range(2):
        Session.objects.get_or_create(session_id="ses_1", defaults={"status": "running", "created_at": NOW})
        told = DedupedEvent(
            event_type="model_request",
            session_id="ses_1",
            timestamp="",
            model="claude-haiku-4-5",
            output_tokens=10,
            origin="request-1",
        )
        record_events([told], NOW)
        assert sum_usage_rows(ModelRequestUsage.objects.all()).output == 10
        assert budgets.load_usage_of_budget(TOKENS, NOW).amount == 10
        Session.objects.all().delete()
    assert sum_usage_rows(ModelRequestUsage.objects.all()).output == 10
