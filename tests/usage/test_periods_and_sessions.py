"""The Usage page compares periods and names dear sessions; a session's page shows its turns and its context."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from coordinator.actions.sessions.events import record_events
from coordinator.lib import instants
from coordinator.models import Agent, ModelRequestUsage, Session, UsageDay
from coordinator.sessions.events import NewEvent
from coordinator.usage.reading import (
    load_period_usage,
    load_usage_by_costliest_session,
    load_usage_by_day_and_model,
)
from coordinator.usage.turns import find_model_context_window_tokens, load_session_turn_usage
from dashboard.looks.charts import build_amount_chart, build_daily_heat_map
from dashboard.usage.charts import describe_difference_from_previous_period
from dashboard.usage.query import UsageQuery, filter_usage_rows_by_period, load_usage_by_slot_and_name
from tests.people import signed_in
from tests.usage.test_page import text_of

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def report(at: datetime, kind: str = "model_request", session: str = "ses_1", **fields: Any) -> None:
    Session.objects.get_or_create(
        session_id=session, defaults={"status": "running", "created_at": at, "agent_name": "ann"}
    )
    event = NewEvent(
        event_type=kind, session_id=session, timestamp=instants.format_canonical_instant(at), **fields
    )
    record_events([event], at)


def request_model(at: datetime, tokens: int = 1000, model: str = "claude-haiku-4-5", **fields: Any) -> None:
    report(at, model=model, input_tokens=tokens, output_tokens=10, **fields)


@pytest.fixture
def viewer() -> Client:
    return signed_in("viewer")


def test_the_period_before_ends_at_the_same_time_of_day() -> None:
    query = UsageQuery(days=7, zone="Europe/Berlin")
    start, end = query.previous_bounds(NOON)
    assert (start, end) == (datetime(2026, 11, 6, 23, tzinfo=UTC), NOON - timedelta(days=7))
    assert query.start_instant(NOON) - start == timedelta(days=7)


def test_the_period_before_keeps_the_time_of_day_where_clocks_change() -> None:
    after_the_change = datetime(
        2026, 10, 27, 12, tzinfo=UTC
    )  # 13:00 in Berlin; a week earlier 13:00 was 11:00 UTC
    _, end = UsageQuery(days=7, zone="Europe/Berlin").previous_bounds(after_the_change)
    assert end == datetime(2026, 10, 20, 11, tzinfo=UTC)
    start, end = UsageQuery(days=1, zone="Europe/Berlin").previous_bounds(after_the_change)
    assert end - start == timedelta(hours=23)
    assert after_the_change - end == timedelta(hours=24)


def test_a_period_counts_sessions_and_the_share_of_sub_agents() -> None:
    request_model(NOON, 3000)
    request_model(NOON, 1000, session="ses_2", subagent="a1")
    period = load_period_usage(filter_usage_rows_by_period(NOON - timedelta(days=1)))
    assert (period.sessions, period.total.requests, period.subagents.requests) == (2, 2, 1)
    assert period.subagent_percent == 25
    assert period.average_session_tokens == (3010 + 1010) // 2


def test_the_dearest_sessions_come_first_and_a_deleted_one_has_no_link(
    viewer: Client, monkeypatch: Any
) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOON)
    request_model(NOON, 1000, session="cheap")
    request_model(NOON, 900_000, session="dear")
    request_model(NOON, 500_000, session="gone")
    ModelRequestUsage.objects.filter(session_id="gone").update(session_id="long gone")
    assert list(load_usage_by_costliest_session(ModelRequestUsage.objects.all(), 2)) == ["dear", "long gone"]
    page = viewer.get("/ui/costs/?days=7").content.decode()
    assert '/ui/sessions/dear/-/usage/"' in page
    assert "/ui/sessions/long" not in page
    assert "long gone deleted" in text_of(page)


def test_figures_are_compared_with_the_period_before(viewer: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOON)
    request_model(NOON - timedelta(days=8), 1_000_000, session="before")
    request_model(NOON - timedelta(days=7, hours=-1), 4_000_000, session="later that day")
    request_model(NOON, 2_000_000)
    page = text_of(viewer.get("/ui/costs/?days=7").content.decode())
    assert "100 % more than $1.00" in page
    assert "as before: 1" in page  # sessions


@pytest.mark.parametrize(
    ("now", "before", "label"),
    [
        (0, 0, "as before"),
        (5, 0, "nothing before"),
        (5, 10, "50 % less than ten"),
        (10, 10, "as before: ten"),
        (29, 10, "190 % more than ten"),
        (614, 10, "61 times as much as ten"),
        (5_000, 10, "ten before"),
    ],
)
def test_how_a_figure_changed(now: float, before: float, label: str) -> None:
    assert describe_difference_from_previous_period(now, before, "ten") == label


def test_a_year_is_a_map_of_days_and_a_table_says_the_same(viewer: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOON)
    request_model(NOON, 1_000_000)
    request_model(NOON - timedelta(days=100), 10_000_000)
    page = viewer.get("/ui/costs/?days=365").content.decode()
    assert len(re.findall(r'class="heat-\d"\s+x="\d+"\s+y=', page)) == 365
    assert "<title>Fri 20 Nov 2026: $1.00</title>" in page
    assert "2026-11-16 $1.00" in text_of(page)
    assert "heat-map" not in viewer.get("/ui/costs/?days=90").content.decode()


def test_shades_are_quarters_of_the_days_with_something() -> None:
    last = date(2026, 11, 20)
    values = {last - timedelta(days=back): (10.0**back, "") for back in range(4)}
    levels = {square.day: square.level for square in build_daily_heat_map(values, last, 365).days}
    assert [levels[last - timedelta(days=back)] for back in range(5)] == [1, 2, 3, 4, 0]


def test_a_session_has_turns_with_their_context_compactions_and_models(viewer: Client) -> None:
    def at(minute: int) -> datetime:
        return NOON + timedelta(minutes=minute)

    said = [{"type": "text", "text": "go on"}]
    report(at(0), "message", role="user", content=said)
    request_model(at(1), 20_000)
    request_model(at(2), 150_000)
    request_model(at(3), 7, subagent="a1")
    report(at(4), "compaction")
    request_model(at(5), 30_000)
    report(at(6), "message", role="user", content=said)
    request_model(at(7), 40_000, model="claude-opus-4-6")
    used = load_session_turn_usage("ses_1")
    assert [
        (turn.usage.requests, turn.context_tokens, turn.compactions, turn.has_new_model)
        for turn in used.turns
    ] == [
        (4, 30_000, 1, False),
        (1, 40_000, 0, True),
    ]
    assert [(fill.tokens, fill.is_compacted) for fill in used.context] == [
        (20_000, False), (150_000, False), (30_000, True), (40_000, False),
    ]  # fmt: skip
    page = viewer.get("/ui/sessions/ses_1/-/usage/").content.decode()
    assert "<title>Requests" not in page
    assert "<title>Request 3, Context after compaction: 30,000 tokens, 15 %</title>" in page
    assert "20 % of 200,000" in text_of(page)
    assert "a1 1 7 0 0 10" in text_of(page)


def test_a_small_model_beside_the_conversation_is_no_change_of_model(viewer: Client) -> None:
    def at(minute: int) -> datetime:
        return NOON + timedelta(minutes=minute)

    said = [{"type": "text", "text": "go on"}]
    report(at(0), "message", role="user", content=said)
    request_model(at(1), 20_000, model="claude-sonnet-4-5")
    report(at(2), "message", role="assistant", content=said, model="claude-sonnet-4-5")
    request_model(at(3), 50, model="claude-haiku-4-5")  # for the session's title
    request_model(at(4), 30_000, model="claude-sonnet-4-5")
    request_model(at(5), 40_000, model="claude-opus-4-6")
    report(at(6), "message", role="assistant", content=said, model="claude-opus-4-6")
    used = load_session_turn_usage("ses_1")
    assert [(fill.tokens, fill.has_new_model) for fill in used.context] == [
        (20_000, False), (30_000, False), (40_000, True),
    ]  # fmt: skip
    assert [(turn.usage.requests, turn.context_tokens, turn.model) for turn in used.turns] == [
        (4, 40_000, "claude-opus-4-6")
    ]
    assert "1 model change" in text_of(viewer.get("/ui/sessions/ses_1/-/usage/").content.decode())


def test_a_session_without_tokens_says_so(viewer: Client) -> None:
    report(NOON, "message", role="user", content=[{"type": "text", "text": "hello"}])
    assert "No tokens counted" in viewer.get("/ui/sessions/ses_1/-/usage/").content.decode()
    assert viewer.get("/ui/sessions/none/-/usage/").status_code == 404


@pytest.mark.parametrize(
    ("model", "prompt", "window"),
    [
        ("claude-opus-4-6", 0, 200_000),
        ("claude-opus-4-6[1m]", 0, 1_000_000),
        ("claude-opus-4-6", 300_000, 1_000_000),
        ("claude-opus-4-6", 3_000_000, None),
        ("gpt-5.2-codex", 0, 400_000),
        ("nobody-knows", 0, None),
    ],
)
def test_the_context_window_is_that_of_the_list(model: str, prompt: int, window: int | None) -> None:
    assert find_model_context_window_tokens(model, prompt) == window


@pytest.mark.parametrize(
    ("largest", "is_money", "top", "labels"),
    [
        (0, True, 0, ["$0.50", "0"]),
        (0.0071, True, 0, ["$0.008", "$0.006", "$0.004", "$0.002", "0"]),
        (0.9, True, 0, ["$1.00", "$0.80", "$0.60", "$0.40", "$0.20", "0"]),
        (2.15, True, 0, ["$3", "$2", "$1", "0"]),
        (48_000, True, 0, ["$60 k", "$40 k", "$20 k", "0"]),
        (1, False, 0, ["1", "0"]),
        (1_400_000, False, 0, ["1.5 M", "1 M", "500 k", "0"]),
        (150_000, False, 200_000, ["200 k", "100 k", "0"]),
        (210_000, False, 200_000, ["300 k", "200 k", "100 k", "0"]),
    ],
)
def test_lines_across_a_chart_stand_at_round_amounts(
    largest: float, is_money: bool, top: float, labels: list[str]
) -> None:
    values = {("Monday", "all"): (largest, "")}
    chart = build_amount_chart(["Monday"], ["all"], values, is_money=is_money, top=top)
    assert [tick.label for tick in chart.ticks] == labels
    assert (chart.ticks[0].top, chart.ticks[-1].top) == (0, 100)


@pytest.mark.parametrize(
    "largest", [10**power * factor for power in range(-4, 13) for factor in (1, 1.7, 3.3, 9.99)]
)
def test_a_chart_of_any_height_has_up_to_five_steps_that_differ(largest: float) -> None:
    for is_money in (True, False):
        chart = build_amount_chart(["Monday"], ["all"], {("Monday", "all"): (largest, "")}, is_money=is_money)
        assert 1 <= chart.axis_interval_count <= 5
        assert len({tick.label for tick in chart.ticks}) == len(chart.ticks)
        assert all(0 <= piece.top <= 100 for column in chart.columns for piece in column.pieces)


def test_the_sums_of_days_are_those_of_the_requests() -> None:
    for day in range(3):
        request_model(NOON - timedelta(days=day), 1_000 * (day + 1), session=f"ses_{day % 2}")
    request_model(NOON, 7, model="a-model-without-a-price")
    query = UsageQuery(days=7)
    slots = load_usage_by_slot_and_name(query, NOON + timedelta(minutes=1))
    days = load_usage_by_day_and_model(UsageDay.objects.all())
    assert days == {key: replace(used, requests=0) for key, used in slots.items()}
    assert days["2026-11-20", "a-model-without-a-price"].unpriced_tokens == 17


def test_the_overview_and_an_agent_s_page_have_a_small_chart(viewer: Client, monkeypatch: Any) -> None:

    monkeypatch.setattr("django.utils.timezone.now", lambda: NOON)
    request_model(NOON, 1_000_000)
    assert "Usage in 14 days" in viewer.get("/ui/").content.decode()
    agent = Agent.objects.first()
    assert agent is not None
    address = reverse("agents:detail", args=[agent.pk])
    assert "Usage in 14 days" not in viewer.get(address).content.decode()
    Session.objects.update(agent_name=agent.pk)
    assert "2026-11-20, claude-haiku-4-5: $1.00" in viewer.get(address).content.decode()
