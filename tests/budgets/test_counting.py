"""What is used is summed with the events, by the installation's day; what cannot be counted is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import override_settings
from django.utils import timezone

from coordinator.actions import events, prices
from coordinator.identity.actors import Actor
from coordinator.lib import instants
from coordinator.models import ApiKey, Session, SessionOwner, SessionWriter, UsageDay
from coordinator.policy import budgets
from coordinator.policy.budgets import BudgetRow
from coordinator.sessions.events import DedupedEvent, NewEvent

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANNA = Actor("user", "anna")


def session(number: int = 0, **columns: Any) -> Session:
    values = {
        "status": "running",
        "created_at": NOW,
        "agent_name": "codex",
        "executor_profile": "codex",
    } | columns
    return Session.objects.create(session_id=f"ses_{number:012x}", **values)


def event(of: Session, kind: str = "pre_tool", *, at: datetime = NOW, **columns: Any) -> NewEvent:
    return NewEvent(event_type=kind, session_id=of.pk, timestamp=instants.canonical(at), **columns)


def spent(of: Session, model: str | None = "claude-opus-4-5", *, input: int = 0, output: int = 0) -> NewEvent:
    return event(of, "model_request", model=model, input_tokens=input, output_tokens=output)


def budget(
    measure: str = "calls", *, reach: str = "everything", name: str = "", span: str = "day"
) -> BudgetRow:
    return BudgetRow(1, reach, name, span, measure, 100.0, "hold")


def test_calls_and_tokens_are_summed_with_the_events_that_are_written() -> None:
    one, two = session(1), session(2, agent_name="agent.two", executor_profile="gemini")
    told = DedupedEvent(
        event_type="pre_tool", session_id=one.pk, timestamp=instants.canonical(NOW), origin="x"
    )
    events.record_events([event(one), event(one, "post_tool"), spent(one, input=5, output=7), told], NOW)
    events.record_events([told, event(two), spent(two, input=1, output=2), event(two, "message")], NOW)
    assert budgets.used(budget(), NOW).amount == 3  # the one that was told twice counts once
    assert budgets.used(budget("tokens"), NOW).amount == 15
    assert budgets.used(budget("tokens", reach="agent", name="agent.two"), NOW).amount == 3
    assert budgets.used(budget("tokens", reach="agent", name="codex"), NOW).amount == 12
    assert budgets.used(budget(span="session"), NOW, two.pk).amount == 1
    assert budgets.used(budget(), NOW + timedelta(days=1)).amount == 0


def test_a_refused_event_counts_nothing() -> None:
    one = session()
    gone = event(one)
    gone.session_id = "ses_gone"
    events.record_events([gone, event(one)], NOW)
    assert budgets.used(budget(), NOW).amount == 1


def test_a_call_through_the_gateway_counts_once() -> None:
    hooked, bare = session(1), session(2, executor_profile="mcp-gateway")
    events.record_events([event(hooked), event(hooked, source="gateway"), event(bare, source="gateway")], NOW)
    assert budgets.used(budget(), NOW).amount == 2


def test_money_is_counted_by_prices_and_what_has_none_is_said() -> None:
    one = session()
    price = dict.fromkeys(("input", "output", "cache_read", "cache_write"), 1_000_000.0)
    prices.save({"own": price}, by=ANNA, now=NOW)
    events.record_events([spent(one, "own", input=2, output=3), spent(one, "nobody-knows", output=40)], NOW)
    found = budgets.standing(budget("money"), NOW)
    assert (found.use.amount, found.use.unpriced) == (5.0, 40)
    assert found.used_words == "at least $5.00"
    assert found.unknown_words == "40 tokens of models without a price are not counted."


def test_sessions_that_tell_no_tokens_are_said() -> None:
    telling, silent = session(1), session(2)
    events.record_events([event(telling), spent(telling, output=1), event(silent)], NOW)
    assert budgets.silent_sessions(UsageDay.objects.all()) == 1


def test_a_session_is_whose_key_began_it_unless_a_person_ordered_it() -> None:
    hooked, ordered = session(1), session(2)
    ApiKey.objects.create(
        name="laptop", prefix="sbx", key_hash="h", scopes=["agent"], created_at=NOW, created_by="user:anna"
    )
    for one in (hooked, ordered):
        SessionWriter.objects.create(session=one, writer="laptop")
    SessionOwner.objects.create(session=ordered, person="bob")
    events.record_events([event(hooked), event(ordered), event(ordered)], NOW)
    assert [budgets.used(budget(reach="person", name=name), NOW).amount for name in ("anna", "bob")] == [1, 2]
    assert [budgets.owner_of(one.pk) for one in (hooked, ordered)] == ["anna", "bob"]


@pytest.mark.parametrize(
    ("zone", "at", "day", "hours"),
    [
        ("UTC", "2026-11-22T23:59:59+00:00", "2026-11-22", 24),
        ("Europe/Berlin", "2026-11-22T23:30:00+00:00", "2026-11-23", 24),
        ("Asia/Kolkata", "2026-11-22T18:29:59+00:00", "2026-11-22", 24),
        ("Asia/Kolkata", "2026-11-22T18:30:00+00:00", "2026-11-23", 24),
        ("Europe/Berlin", "2026-03-29T00:30:00+00:00", "2026-03-29", 23),  # clocks go forward
        ("Europe/Berlin", "2026-10-25T00:30:00+00:00", "2026-10-25", 25),  # … and back
        ("America/New_York", "2026-11-01T05:30:00+00:00", "2026-11-01", 25),
    ],
)
def test_days_are_those_of_the_installation_s_time_zone(zone: str, at: str, day: str, hours: int) -> None:
    moment, one = datetime.fromisoformat(at), session()
    with override_settings(LOCAL_ZONE=ZoneInfo(zone)):
        events.record_events([event(one)], moment)
        assert UsageDay.objects.get().day == day == budgets.today(moment)
        end = budgets.end_of_today(moment)
        begun = datetime.combine(
            moment.astimezone(ZoneInfo(zone)).date(), datetime.min.time(), ZoneInfo(zone)
        )
        assert end - begun.astimezone(UTC) == timedelta(hours=hours)
        assert budgets.used(budget(), end - timedelta(microseconds=1)).amount == 1
        assert budgets.used(budget(), end).amount == 0


def test_what_is_deleted_stays_used() -> None:
    one = session()
    now = timezone.now()
    events.record_events([event(one, at=now)], now)
    Session.objects.filter(pk=one.pk).delete()
    assert budgets.used(budget(), now).amount == 1
