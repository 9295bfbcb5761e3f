"""What is sent late says nothing that is over by then, and rows of other programs stop no message."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from coordinator.actions import notifications
from coordinator.actions.policy import budgets
from coordinator.identity.actors import person_actor
from coordinator.models import Budget, Notification, QuietHours, UsageDay
from coordinator.notifications import push, quiet_hours
from coordinator.policy.limits.budgets import installation_local_iso_date
from tests.approvals.factories import NOW, asked
from tests.notifications.telling import Told, deliver, listening, told  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db


def spend_a_budget() -> Budget:
    """Return a day's budget that is used up just now, of which a message waits."""
    budget = Budget.objects.create(
        reach="agent", name="codex", span="day", measure="calls", amount=10.0, at_limit="hold", changed_at=NOW
    )
    UsageDay.objects.create(
        day=installation_local_iso_date(NOW), session_id="ses_1", model="", agent="codex", calls=10,
        input_tokens=0, output_tokens=0, cache_read_tokens=0, cache_write_tokens=0,
    )  # fmt: skip
    budgets.record_reached_budgets(NOW)
    return budget


def test_a_budget_of_yesterday_is_not_said_to_be_used_up_today(alice: User, told: Told) -> None:  # noqa: F811
    listening(alice)
    notifications.set_quiet_hours(user=alice, begins="11:00", ends="10:00", zone="UTC", now=NOW)
    spend_a_budget()
    deliver(NOW)
    assert told == []
    deliver(NOW + timedelta(hours=22, minutes=1))  # at 10:01 of the next day, of which nothing is used
    assert told == []


def test_a_budget_that_was_removed_is_not_said_to_be_used_up(alice: User, told: Told) -> None:  # noqa: F811
    listening(alice)
    budget = spend_a_budget()
    budgets.end_budget(budget.pk, actor=person_actor(alice), now=NOW)
    deliver(NOW)
    assert told == []


def test_a_device_that_was_away_for_an_hour_hears_of_a_budget(alice: User) -> None:
    listening(alice)
    spend_a_budget()
    message = Notification.objects.get()
    assert push.push_ttl_timedelta(message, None, NOW) >= timedelta(hours=1)


@pytest.mark.parametrize("columns", [{"begins": "00:00+02:00"}, {"ends": "23:59Z"}])
def test_quiet_hours_with_an_offset_keep_nothing_quiet(
    alice: User,
    told: Told,  # noqa: F811
    columns: dict[str, str],
) -> None:
    hours = {"person": "alice", "zone": "UTC", "begins": "00:00", "ends": "23:59"} | columns
    assert quiet_hours.quiet_hours_end(QuietHours(**hours), NOW) is None


def test_quiet_hours_with_an_offset_stop_no_message(alice: User, told: Told) -> None:  # noqa: F811
    listening(alice)
    QuietHours.objects.create(person="alice", zone="UTC", begins="22:00+02:00", ends="07:00")
    asked()
    deliver(NOW)
    assert told.people() == ["alice"]
