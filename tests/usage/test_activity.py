"""Calls counted by hour: what is counted, that counting again changes nothing, and what pages show of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.sessions.events import record_events
from coordinator.actions.usage.activity import refresh_due_activity_hours
from coordinator.lib import instants
from coordinator.models import ActivityHour, Agent, CountedHour, Event, EventContext, Session
from coordinator.models.gateway import BY_GATEWAY
from coordinator.sessions.events import DedupedEvent
from coordinator.usage.activity import (
    filter_activity_hours,
    hours_since_1970,
    load_call_totals_by_tool,
    load_calls_by_agent_and_hour,
    load_calls_by_hour,
)
from tests.people import signed_in

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 27, 9, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def report(
    tool: str = "Bash",
    kind: str = "post_tool",
    *,
    at: datetime = NOW,
    agent: str | None = "robot",
    took: int | None = None,
    error: str | None = None,
    source: str = "executor",
    call: str | None = None,
) -> Event:
    session, _ = Session.objects.get_or_create(
        session_id=f"ses_{agent}", defaults={"status": "running", "created_at": at, "agent_name": agent}
    )
    event = Event.objects.create(session=session, event_type=kind, timestamp="t", tool_name=tool, error=error)
    EventContext.objects.create(
        event=event,
        session_id=session.pk,
        instant_us=0,
        received_at=at,
        duration_ms=took,
        source=source,
        tool_use_id=call,
    )
    return event


def import_call(origin: str, at: datetime) -> None:
    call = DedupedEvent(
        event_type="pre_tool",
        session_id="ses_robot",
        timestamp=instants.format_canonical_instant(at),
        tool_name="Bash",
        origin=origin,
        late=True,
    )
    record_events([call], NOW)


def counted() -> list[tuple[int, str, str, int, int]]:
    rows = ActivityHour.objects.order_by("hour", "agent_name", "tool_name")
    return [
        (row.hour - hours_since_1970(NOW), row.agent_name, row.tool_name, row.calls, row.failed)
        for row in rows
    ]


class TestCounting:
    def test_calls_are_counted_by_hour_agent_and_tool(self):
        for at in (NOW, NOW, NOW - HOUR, NOW - timedelta(days=3)):
            report(at=at)
        report("Read", error="no such file")
        report(agent=None)
        refresh_due_activity_hours(NOW)
        assert counted() == [
            (-72, "robot", "Bash", 1, 0),
            (-1, "robot", "Bash", 1, 0),
            (0, "", "Bash", 1, 0),
            (0, "robot", "Bash", 2, 0),
            (0, "robot", "Read", 1, 1),
        ]

    def test_a_call_told_at_its_beginning_at_its_end_and_by_the_gateway_is_one(self):
        report(kind="pre_tool")
        report(took=700)
        report(took=650, source=BY_GATEWAY)
        refresh_due_activity_hours(NOW)
        (row,) = ActivityHour.objects.all()
        assert (row.calls, row.within_1s, row.longer) == (1, 1, 0)

    def test_a_call_that_lasts_beyond_its_hour_is_one(self):
        begun = NOW.replace(minute=59)
        report(kind="pre_tool", at=begun, call="c1")
        for source in ("executor", BY_GATEWAY):
            report(at=begun + timedelta(minutes=2), took=120_000, error="gone", source=source, call="c1")
        report(at=begun + timedelta(minutes=3), call="c2")  # of which nobody told the beginning
        report(kind="pre_tool", at=begun + timedelta(minutes=3), call="c3")
        report(at=begun + timedelta(minutes=4), call="c3")
        report(agent="other", at=begun + timedelta(minutes=2), call="c1")  # the same name in another session
        refresh_due_activity_hours(begun + timedelta(minutes=30))
        assert counted() == [
            (0, "robot", "Bash", 1, 0),
            (1, "other", "Bash", 1, 0),
            (1, "robot", "Bash", 2, 1),
        ]
        row = ActivityHour.objects.get(hour=hours_since_1970(NOW + HOUR), agent_name="robot")
        assert row.within_5m == 1

    def test_calls_that_are_imported_later_are_counted_in_their_hours(self):
        at = NOW - 5 * HOUR
        report(at=at, kind="pre_tool")
        report("Read", at=at, kind="pre_tool", agent="other")
        report(at=at - HOUR, kind="pre_tool")
        refresh_due_activity_hours(NOW)
        Session.objects.filter(pk="ses_other").delete()
        EventContext.objects.filter(received_at__lt=at).delete()
        import_call("c1", at)
        import_call("c2", NOW - timedelta(days=20))  # before those hours that are counted at all
        refresh_due_activity_hours(NOW + timedelta(minutes=10))
        # What was counted of a session stays counted when it is deleted.
        assert counted() == [
            (-6, "robot", "Bash", 1, 0),
            (-5, "other", "Read", 1, 0),
            (-5, "robot", "Bash", 2, 0),
        ]
        import_call("c1", at)  # which is known
        assert CountedHour.objects.filter(hour=hours_since_1970(at)).exists()

    def test_counting_again_replaces_and_finds_what_was_committed_late(self):
        report()
        refresh_due_activity_hours(NOW)
        report()
        refresh_due_activity_hours(NOW + timedelta(minutes=1))
        assert counted() == [(0, "robot", "Bash", 2, 0)]

    def test_an_hour_that_is_over_and_settled_is_counted_no_more(self):
        report(at=NOW - HOUR)
        refresh_due_activity_hours(NOW)
        report(at=NOW - HOUR)
        refresh_due_activity_hours(NOW + timedelta(minutes=1))
        assert counted() == [(-1, "robot", "Bash", 1, 0)]

    def test_an_hour_counted_as_it_ran_is_counted_once_more_after_its_end(self):
        refresh_due_activity_hours(NOW)
        report()
        refresh_due_activity_hours(NOW + HOUR)
        assert counted() == [(0, "robot", "Bash", 1, 0)]

    def test_an_hour_that_took_long_to_count_rests(self):
        report()
        refresh_due_activity_hours(NOW)
        CountedHour.objects.filter(hour=hours_since_1970(NOW)).update(took_ms=10_000)
        report()
        refresh_due_activity_hours(NOW + timedelta(minutes=3))
        assert counted() == [(0, "robot", "Bash", 1, 0)]
        refresh_due_activity_hours(NOW + timedelta(minutes=4))
        assert counted() == [(0, "robot", "Bash", 2, 0)]

    def test_counts_outlive_their_events_and_are_forgotten_after_five_weeks(self):
        report()
        refresh_due_activity_hours(NOW + HOUR)
        Session.objects.all().delete()
        refresh_due_activity_hours(NOW + timedelta(days=2))
        assert counted() == [(0, "robot", "Bash", 1, 0)]
        refresh_due_activity_hours(NOW + timedelta(days=36))
        assert counted() == []
        assert not CountedHour.objects.filter(hour=hours_since_1970(NOW)).exists()


class TestReading:
    def test_names_of_an_agent_are_one_row(self):
        Agent.objects.create(id="agent.robot", name="Robot", default_engine_id="mind.x")
        for name in ("robot", "agent.robot", "stranger"):
            report(agent=name)
        refresh_due_activity_hours(NOW)
        rows = load_calls_by_agent_and_hour(
            filter_activity_hours(hours_since_1970(NOW), hours_since_1970(NOW))
        )
        assert [(row.agent.agent_name if row.agent else row.name, row.call_count) for row in rows] == [
            ("Robot", 2),
            ("stranger", 1),
        ]

    def test_quantiles_are_the_bounds_that_hold_the_share(self):
        for took in (*[90] * 50, *[400] * 45, *[4_000] * 4, 7_200_000):
            report(took=took)
        report()  # nobody said how long it took
        refresh_due_activity_hours(NOW)
        hours = (hours_since_1970(NOW - 3 * HOUR), hours_since_1970(NOW))
        totals = load_call_totals_by_tool(filter_activity_hours(*hours))["Bash"]
        assert (totals.calls, totals.timed_call_count) == (101, 100)
        assert (totals.p50, totals.p95, totals.p99) == (100, 500, 5_000)
        assert totals.duration_bound(1) == float("inf")
        assert load_calls_by_hour(filter_activity_hours(*hours))[hours[1]].calls == 101


def text(response: Any) -> str:
    return " ".join(response.content.decode().split())


class TestPages:
    @pytest.fixture(autouse=True)
    def _calls(self) -> None:
        Agent.objects.create(id="agent.robot", name="Robot", default_engine_id="mind.x")
        now = timezone.now()
        for _ in range(3):
            report(at=now, took=30)
        report("Read", at=now - timedelta(days=10), error="gone")
        report("Grep", at=now, agent="stranger")
        refresh_due_activity_hours(now)

    def test_the_overview_shows_activity_by_hour_and_by_agent(self):
        shown = text(signed_in("viewer").get("/ui/"))
        assert "Activity in 24 hours" in shown
        assert 'aria-label="Robot: 3"' in shown
        assert 'aria-label="stranger: 1"' in shown

    def test_the_numbers_behind_the_squares_are_a_table(self):
        shown = text(signed_in("viewer").get("/ui/"))
        rows = re.findall(r'<th scope="row">\s*(\w+)\s*</th>(.*?)</tr>', shown, re.DOTALL)
        numbers = {name: re.findall(r"\d+", re.sub(r"<[^>]*>", " ", cells)) for name, cells in rows}
        assert {name: (len(cells), sum(map(int, cells))) for name, cells in numbers.items()} == {
            "Robot": (24, 3),
            "stranger": (24, 1),
        }

    def test_the_pictures_are_asked_for_again_alone(self):
        client = signed_in("viewer")
        shown = text(client.get("/ui/costs/activity/", headers={"HX-Request": "true"}))
        assert shown.startswith('<div class="stack" id="activity"')
        assert client.get("/ui/costs/activity/").status_code == 302

    def test_tools_of_all_agents_or_of_one_in_a_period(self):
        client = signed_in("viewer")
        assert "4 calls" in text(client.get("/ui/costs/tools/"))
        shown = text(client.get("/ui/costs/tools/", {"agent": "robot", "days": "14"}))
        assert "4 calls, 1 failed" in shown
        assert "100.0 %" in shown
        assert "\u2264 50 ms" in shown
        assert "Grep" not in shown
        nothing = text(client.get("/ui/costs/tools/", {"agent": "nobody", "days": "x"}))
        assert "No calls of this agent in this period" in nothing

    def test_an_agents_page_shows_its_week_and_tools(self):
        shown = text(signed_in("viewer").get("/ui/agents/of/agent.robot/"))
        assert "Calls in 7 days" in shown
        assert "3 calls" in shown
        assert "Grep" not in shown

    def test_an_agents_week_is_in_the_zone_that_its_page_is_asked_for_in(self):
        client = signed_in("viewer")
        tokyo = text(client.get("/ui/agents/of/agent.robot/", {"zone": "Asia/Tokyo"}))
        assert 'data-zone-of-page="Asia/Tokyo"' in tokyo
        assert "Hours in Asia/Tokyo" in tokyo
        utc = text(client.get("/ui/agents/of/agent.robot/", {"zone": "UTC"}))
        ((in_tokyo,), (in_utc,)) = (
            re.findall(r'class="heat-[1-9]" x="(\d+)"', page) for page in (tokyo, utc)
        )
        assert int(in_tokyo) == (int(in_utc) + 9) % 24
        assert "Hours in UTC" in text(client.get("/ui/agents/of/agent.robot/", {"zone": "../Moon"}))

    def test_a_new_installation_shows_no_empty_pictures(self):
        ActivityHour.objects.all().delete()
        Session.objects.all().delete()
        shown = text(signed_in("viewer").get("/ui/"))
        assert "Activity in 24 hours" not in shown
        assert "No calls in this period" in text(signed_in("approver").get("/ui/costs/tools/"))
