"""Approvers are messaged once when a budget reaches 80 and 100 percent, wherever they hear of budgets."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from coordinator.actions.policy import budgets
from coordinator.models import Budget, BudgetMark, Notification, UsageDay
from coordinator.notifications import push, webhook_messages
from coordinator.policy.limits.budgets import installation_local_iso_date
from tests.approvals.factories import NOW, asked, person
from tests.notifications.telling import Told, deliver, listening, told  # noqa: F401 - a fixture
from tests.people import signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def budget() -> Budget:
    return Budget.objects.create(
        reach="agent", name="codex", span="day", measure="calls", amount=10.0, at_limit="hold", changed_at=NOW
    )


def use(calls: int) -> None:
    UsageDay.objects.create(
        day=installation_local_iso_date(NOW), session_id=f"ses_{UsageDay.objects.count()}",
        model="", agent="codex", calls=calls,
        input_tokens=0, output_tokens=0, cache_read_tokens=0, cache_write_tokens=0,
    )  # fmt: skip


def test_each_is_told_at_80_and_at_100_percent_and_never_twice(
    budget: Budget,
    told: Told,  # noqa: F811
) -> None:
    anna, bob = person("anna"), person("bob")
    listening(anna)
    listening(bob, about="budgets")
    listening(bob, about="marked")
    listening(User.objects.create(username="carl"))  # may decide nothing
    for calls in (7, 1, 0, 2, 5):
        use(calls)
        budgets.record_reached_budgets(NOW)
        deliver(NOW)
    nearly = "Signalbox: the budget of 10 tool calls a day for codex is 80 % used"
    over = "Signalbox: the budget of 10 tool calls a day for codex is used up"
    assert sorted(told) == sorted((name, title) for name in ("anna", "bob") for title in (nearly, over))
    assert Notification.objects.filter(event="budget", state="sent").count() == 4


def test_an_address_for_budgets_hears_of_no_request(told: Told) -> None:  # noqa: F811
    listening(person("anna"), about="budgets")
    asked()
    deliver(NOW)
    assert told == []


def test_what_was_changed_meanwhile_is_not_told_any_more(budget: Budget, told: Told) -> None:  # noqa: F811
    listening(person("anna"))
    use(9)
    budgets.record_reached_budgets(NOW)
    budget.marks.all().delete()  # as changing its amount does
    deliver(NOW)
    assert told == []
    assert Notification.objects.get().outcome == "the budget was changed before"


def test_webhooks_and_devices_are_told_in_words_and_where_to_go(budget: Budget) -> None:
    anna = person("anna")
    listening(anna)
    use(10)
    budgets.record_reached_budgets(NOW)
    message = Notification.objects.order_by("-id")[0]
    body = webhook_messages.build_webhook_payload(message, None, NOW)
    assert body["event"] == "budget.reached"
    assert body["title"].endswith("is used up")
    assert body["text"].startswith("Further calls are denied, and no run starts.")
    assert body["url"].endswith("/ui/budgets/")
    shown = push.load_push_payload_of_notification(message, None, timezone.now())
    assert (shown["kind"], shown["url"]) == ("budget", "/ui/budgets/")
    assert len(json.dumps(shown)) < 1_000


def test_the_log_of_messages_names_the_budget(budget: Budget) -> None:
    client = signed_in("approver")
    listening(User.objects.get(username="approver"))
    use(8)
    budgets.record_reached_budgets(NOW)
    page = client.get("/ui/approvals/notifications/").content.decode()
    assert '<a href="/ui/budgets/">Budget</a>' in page


def test_however_many_sessions_a_budget_has_they_are_read_together() -> None:
    Budget.objects.create(
        reach="everything",
        name="",
        span="session",
        measure="calls",
        amount=10.0,
        at_limit="hold",
        changed_at=NOW,
    )
    counts = []
    for _ in range(2):
        for _ in range(20):
            use(1)
        with CaptureQueriesContext(connection) as queries:
            budgets.record_reached_budgets(NOW)
        counts.append(len(queries))
    assert counts[0] == counts[1]
    use(9)
    budgets.record_reached_budgets(NOW)
    assert [mark.level for mark in BudgetMark.objects.all()] == [80]
