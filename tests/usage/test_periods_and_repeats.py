"""Periods over changes of clocks, and readings of ended windows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from coordinator.models import Session, SubscriptionLimit
from coordinator.usage.limits import load_recent_limit_states
from coordinator.usage.turns import load_session_turn_usage
from dashboard.usage.query import UsageQuery, load_usage_by_slot_and_name
from tests.people import signed_in
from tests.usage import test_limits
from tests.usage.test_page import text_of
from tests.usage.test_periods_and_sessions import NOON, request_model

pytestmark = pytest.mark.django_db


def test_today_is_compared_with_yesterday_up_to_the_same_time() -> None:
    query = UsageQuery(day=NOON.date())
    start, end = query.previous_bounds(NOON)
    assert (start, end) == (NOON - timedelta(hours=36), NOON - timedelta(days=1))


def test_the_last_24_hours_have_no_hour_twice(monkeypatch: Any) -> None:
    now = datetime(2026, 10, 25, 12, tzinfo=UTC)
    query = UsageQuery(days=1, zone="Europe/Berlin")
    labels = query.list_time_slot_labels(now)
    assert len(labels) == len(set(labels))


def test_the_table_of_the_last_24_hours_adds_up(monkeypatch: Any) -> None:
    now = datetime(2026, 10, 25, 12, tzinfo=UTC)
    monkeypatch.setattr("django.utils.timezone.now", lambda: now)
    request_model(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), 1234)  # 02:30, the first
    page = text_of(signed_in("viewer").get("/ui/costs/?days=1&zone=Europe/Berlin").content.decode())
    assert page.count("2026-10-25 02:00 1") == 1


@pytest.mark.parametrize("zone", ["Australia/Lord_Howe"])
def test_a_day_of_24_and_a_half_hours_has_its_last_hour(zone: str) -> None:
    query = UsageQuery(day=date(2026, 4, 5), zone=zone)
    labels = query.list_time_slot_labels(NOON)
    assert labels[-1].endswith("23:00")


def test_days_of_a_zone_that_changes_by_half_an_hour() -> None:
    now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    query = UsageQuery(days=365, zone="Australia/Lord_Howe")
    request_model(datetime(2026, 6, 1, 13, 45, tzinfo=UTC))  # 2 June, 00:15
    assert {day for day, _ in load_usage_by_slot_and_name(query, now)} == {"2026-06-02"}


def test_turns_of_a_clock_that_runs_ahead() -> None:
    from coordinator.actions.sessions.events import record_events
    from coordinator.lib import instants
    from coordinator.sessions.events import NewEvent

    Session.objects.create(session_id="ses_1", status="running", created_at=NOON, agent_name="ann")

    def say(seconds: int, kind: str, **fields: Any) -> None:
        received = NOON + timedelta(seconds=seconds)
        ahead = instants.format_canonical_instant(received + timedelta(minutes=5))
        record_events([NewEvent(event_type=kind, session_id="ses_1", timestamp=ahead, **fields)], received)

    for start in (0, 60):
        say(start, "message", role="user", content="hi")
        say(start + 5, "model_request", model="claude-haiku-4-5", input_tokens=5, output_tokens=1)
    assert len(load_session_turn_usage("ses_1").turns) == 2


def test_a_reading_of_an_earlier_window_changes_nothing() -> None:
    test_limits.record(test_limits.reading(80, hours=2))
    test_limits.record(test_limits.reading(20, hours=-3), now=NOW2, at=NOW2)
    (state,) = load_recent_limit_states(NOW2)
    assert state.used_percent == 80


NOW2 = test_limits.NOW + timedelta(minutes=1)


@pytest.mark.parametrize("minutes", [1, 300, 10**12])
def test_the_page_has_a_limit_that_resets_at_the_end_of_time(minutes: int) -> None:
    from zoneinfo import ZoneInfo

    from django.test import override_settings

    SubscriptionLimit.objects.create(
        program="p",
        host="",
        name="",
        window_minutes=minutes,
        used_percent=5,
        resets_at_us=253_402_300_799 * 1_000_000,
        reported_at_us=0,
    )
    with override_settings(LOCAL_ZONE=ZoneInfo("Europe/Berlin"), TIME_ZONE="Europe/Berlin"):
        assert signed_in("viewer").get("/ui/costs/").status_code == 200


def test_an_earlier_window_of_another_account_still_counts() -> None:
    test_limits.record(test_limits.reading(80, hours=4))
    test_limits.record(test_limits.reading(20, hours=2), now=NOW2, at=NOW2)
    (state,) = load_recent_limit_states(NOW2)
    assert state.used_percent == 20
