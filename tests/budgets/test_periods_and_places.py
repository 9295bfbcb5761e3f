"""Budgets of weeks and months, by host, folder and model; by the request's own time; and what becomes of their rate."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import override_settings

from coordinator.actions.policy import budgets as acts
from coordinator.actions.runs import ordering
from coordinator.actions.sessions.events import record_events
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor
from coordinator.lib import instants
from coordinator.models import BudgetMark, Session, UsageDay
from coordinator.policy.limits import budgets
from coordinator.policy.limits.budgets import BudgetRow, BudgetSubject
from coordinator.sessions.events import NewEvent
from dashboard.frame.known_names import is_known_name
from tests.people import signed_in

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)  # a Wednesday
ANNA = Actor("user", "anna")


def session(name: str = "ses_1", **columns: Any) -> Session:
    values = {"status": "running", "created_at": NOW, "agent_name": "codex", "executor_profile": "codex"}
    return Session.objects.create(session_id=name, **values | columns)


def use(
    of: Session, output: int = 10, *, at: datetime = NOW, received: datetime = NOW, model: str = "gpt-5"
) -> None:
    event = NewEvent(
        event_type="model_request",
        session_id=of.pk,
        timestamp=instants.format_canonical_instant(at),
        model=model,
        output_tokens=output,
    )
    record_events([event], received)


def budget(
    reach: str = "everything", name: str = "", span: str = "day", measure: str = "tokens"
) -> BudgetRow:
    return BudgetRow(1, reach, name, span, measure, 100.0, "hold")


def amount(row: BudgetRow, now: datetime = NOW) -> float:
    return budgets.load_usage_of_budget(row, now).amount


def test_tokens_count_on_the_day_of_the_request_and_not_on_that_of_the_report() -> None:
    use(session(), at=NOW - timedelta(days=1))
    assert amount(budget()) == 0
    assert amount(budget(), NOW - timedelta(days=1)) == 10
    assert UsageDay.objects.get().day == "2026-11-24"


def test_calls_count_on_the_day_on_which_they_were_made() -> None:
    for at in (NOW, NOW - timedelta(days=1), NOW + timedelta(days=3)):  # the last by a clock that runs ahead
        call = NewEvent(
            event_type="pre_tool",
            session_id=(Session.objects.first() or session()).pk,
            timestamp=instants.format_canonical_instant(at),
            tool_name="Bash",
        )
        record_events([call], NOW)
    assert amount(budget(measure="calls")) == 2
    assert amount(budget(measure="calls"), NOW - timedelta(days=1)) == 1
    assert amount(budget(measure="calls"), NOW + timedelta(days=3)) == 0


def test_a_clock_that_runs_ahead_counts_as_the_time_of_receipt() -> None:
    use(session(), at=NOW + timedelta(days=30))
    assert amount(budget()) == 10


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"])
def test_an_odd_time_is_a_day_all_the_same(at: str) -> None:
    use(session(), at=datetime.fromisoformat(at))
    assert UsageDay.objects.count() == 1


@pytest.mark.parametrize(
    ("span", "now", "days", "name"),
    [
        ("day", NOW, ("2026-11-25", "2026-11-25"), "2026-11-25"),
        ("week", NOW, ("2026-11-23", "2026-11-29"), "2026-W48"),
        ("month", NOW, ("2026-11-01", "2026-11-30"), "2026-11"),
        ("month", datetime(2026, 2, 10, tzinfo=UTC), ("2026-02-01", "2026-02-28"), "2026-02"),
        ("month", datetime(2026, 12, 31, tzinfo=UTC), ("2026-12-01", "2026-12-31"), "2026-12"),
        ("week", datetime(2027, 1, 1, tzinfo=UTC), ("2026-12-28", "2027-01-03"), "2026-W53"),
    ],
)
def test_periods_are_calendar_weeks_and_months(
    span: str, now: datetime, days: tuple[str, str], name: str
) -> None:
    row = budget(span=span)
    assert tuple(day.isoformat() for day in budgets.budget_period_dates(row, now)) == days
    assert budgets.current_period_iso_label(row, now) == name


def test_a_period_begins_and_ends_at_midnight_of_the_installation() -> None:
    with override_settings(LOCAL_ZONE=ZoneInfo("Europe/Berlin")):
        begin, end = budgets.budget_period_bounds(budget(span="week"), datetime(2026, 10, 25, 12, tzinfo=UTC))
        assert (begin, end) == (
            datetime(2026, 10, 18, 22, tzinfo=UTC),
            datetime(2026, 10, 25, 23, tzinfo=UTC),
        )
        use(session(), at=datetime(2026, 11, 22, 23, 30, tzinfo=UTC))  # Monday in Berlin
        assert amount(budget(span="week")) == 10
    assert amount(budget(span="week"), NOW - timedelta(days=3)) == 0


def test_a_week_and_a_month_have_all_their_days() -> None:
    one = session()
    for back in (0, 2, 3, 24, 25):  # Wednesday, Monday, Sunday, the first, the day before
        use(one, at=NOW - timedelta(days=back))
    assert [amount(budget(span=span)) for span in ("day", "week", "month")] == [10, 20, 40]


def test_hosts_folders_and_models_count_what_is_theirs() -> None:
    use(session("a", hostname="build", project_dir="/srv/shop"))
    use(session("b", hostname="build", project_dir="/srv/shop/api"), model="claude-opus-4-6-20260115")
    use(session("c", hostname="BUILD", project_dir="/srv/shopping"), model="anthropic/claude-opus-4-6")
    use(session("d", hostname=None, project_dir="/SRV/SHOP"))
    assert amount(budget("host", "build")) == 20
    assert amount(budget("folder", "/srv/shop")) == amount(budget("folder", "/srv/shop/")) == 20
    assert amount(budget("folder", "/srv")) == 30
    assert amount(budget("model", "claude-opus-4-6")) == 20
    assert amount(budget("model", "nobody-knows")) == 0


@pytest.mark.parametrize(
    ("row", "applies"),
    [
        (budget("host", "build"), True),
        (budget("host", "other"), False),
        (budget("folder", "/srv"), True),
        (budget("folder", "/srv/shop/"), True),
        (budget("folder", "/srv/sho"), False),
        (budget("model", "gpt-5"), True),
        (budget("model", "gpt-5-mini"), False),
        (budget("planet", "mars"), True),  # of a newer version: it restricts
    ],
)
def test_a_budget_applies_to_sessions_in_its_reach(row: BudgetRow, applies: bool) -> None:
    use(one := session(hostname="build", project_dir="/srv/shop"))
    subject = budgets.load_budget_subject_of_session({row.reach}, ["codex"], one.pk)
    assert row.applies_to(subject) is applies
    assert row.can_apply_to_agents(["anybody"])


@pytest.mark.parametrize(
    ("reach", "name"), [("host", "build"), ("folder", "/srv"), ("model", "gpt-5"), ("agent", "codex")]
)
@pytest.mark.parametrize(("at_limit", "decision"), [("ask", "ask"), ("hold", "deny")])
def test_a_used_up_budget_holds_calls_in_its_reach_alone(
    reach: str, name: str, at_limit: str, decision: str
) -> None:
    use(one := session(hostname="build", project_dir="/srv/shop"), 100)
    other = session("other", hostname="laptop", project_dir="/home", agent_name="x", executor_profile="y")
    use(other, 1, model="claude-opus-4-6")
    rows = [replace(budget(reach, name, "month"), at_limit=at_limit)]
    assert budgets.decide_by_budgets(rows, [], one.pk, NOW).decision == decision
    assert budgets.decide_by_budgets(rows, [], other.pk, NOW).decision == "observe"


def test_a_run_in_a_session_of_a_spent_budget_is_refused() -> None:
    use(one := session(hostname="build", project_dir="/srv/shop"), 100)
    acts.create_budget("folder", "/srv", "week", "tokens", amount=100, at_limit="hold", actor=ANNA, now=NOW)
    with pytest.raises(Conflict, match="100 tokens a week for /srv is used up"):
        ordering.require_run_within_budget(one, ["codex"], ANNA, NOW, is_new=False)
    elsewhere = session("ses_2", project_dir="/home")
    ordering.require_run_within_budget(elsewhere, ["codex"], ANNA, NOW, is_new=False)


def test_people_are_told_once_a_week() -> None:
    acts.create_budget("everything", "", "week", "tokens", amount=10, at_limit="warn", actor=ANNA, now=NOW)
    use(session(), 8)
    acts.record_reached_budgets(NOW)
    acts.record_reached_budgets(NOW + timedelta(days=1))
    assert list(BudgetMark.objects.values_list("about", "level")) == [("2026-W48", 80)]


def test_the_rate_says_when_a_budget_is_used_up() -> None:
    use(session(), 75)  # in two and a half of seven days
    state = budgets.current_budget_state(budget(span="week"), NOW)
    forecast = budgets.forecast_budget_or_none(state, NOW)
    assert forecast is not None
    assert forecast.used_up_at == NOW + timedelta(hours=20)
    assert forecast.used_up_label == "Thursday, 26 November, 08:00"
    slow = budgets.forecast_budget_or_none(replace(state, use=budgets.BudgetUsage(20)), NOW)
    assert slow is not None
    assert (slow.used_up_label, slow.end_percent) == ("", 56)


@pytest.mark.parametrize(
    ("used", "now", "span"),
    [
        (0, NOW, "week"),
        (100, NOW, "week"),
        (50, datetime(2026, 11, 23, 1, tzinfo=UTC), "week"),
        (50, NOW, "session"),
    ],
)
def test_there_is_no_forecast_where_it_would_say_nothing(used: float, now: datetime, span: str) -> None:
    state = budgets.BudgetState(budget(span=span), budgets.BudgetUsage(used))
    assert budgets.forecast_budget_or_none(state, now) is None


def test_the_page_has_the_forecast_and_says_what_matches_nothing(monkeypatch: Any) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    use(session(hostname="build"), 75)
    for reach, name in (("everything", ""), ("host", "build"), ("host", "nowhere")):
        acts.create_budget(reach, name, "week", "tokens", amount=100, at_limit="warn", actor=ANNA, now=NOW)
    page = " ".join(signed_in("viewer").get("/ui/budgets/").content.decode().split())
    assert "At this rate used up on Thursday, 26 November, 08:00." in page
    assert page.count("Matches nothing:") == 1


def test_a_name_that_nothing_has_is_asked_about_once_more() -> None:
    admin = signed_in("admin")
    form = {
        "reach": "folder",
        "name": "/nowhere",
        "span": "week",
        "measure": "tokens",
        "amount": 5,
        "at_limit": "hold",
    }
    refused = admin.post("/ui/budgets/add/", form)
    assert refused.status_code == 422
    assert "No session was in the folder" in refused.content.decode()
    assert admin.post("/ui/budgets/add/", form | {"is_meant": "on"}).status_code == 302


def test_folders_and_models_that_are_known() -> None:
    use(session(project_dir="/srv/shop"), model="my-model-v2:0")
    assert is_known_name("folder", "/srv/")
    assert not is_known_name("folder", "/home")
    assert [is_known_name("model", name) for name in ("my-model", "gpt-5", "?")] == [True, True, False]


def test_a_person_who_is_not_known_is_in_no_one_s_budget() -> None:
    assert not budget("person", "anna").applies_to(BudgetSubject(frozenset()))
