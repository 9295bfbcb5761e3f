"""Who is at work, who waits for whom, and what needs a person."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.sessions import session_sums
from coordinator.lib import instants
from coordinator.models import (
    Agent,
    ApiKey,
    Budget,
    BudgetMark,
    Event,
    EventContext,
    HeldRun,
    Job,
    McpAccessToken,
    McpAuthorization,
    McpCircuitBreaker,
    Run,
    Session,
    SessionGuard,
)
from coordinator.sessions.board import MOST_ROWS, BoardState, load_session_board
from dashboard.overview.attention_items import list_things_needing_attention
from tests.approvals.factories import asked
from tests.people import signed_in
from tests.timelines import add_events, make_session

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 27, 9, tzinfo=UTC)


def add_session(name: str, status: str = "running", **values: Any) -> Session:
    return Session.objects.create(
        session_id=f"ses_{name}", status=status, created_at=NOW, agent_name=name, **values
    )


def add_event(session: Session, kind: str, tool: str | None = None) -> None:
    event = Event.objects.create(session=session, event_type=kind, timestamp="t", tool_name=tool)
    EventContext.objects.create(
        event=event, session_id=session.pk, instant_us=instants.instant_to_microseconds(NOW), received_at=NOW
    )


class TestBoard:
    def test_each_session_says_what_it_is_doing_and_who_waits_comes_first(self):
        add_event(add_session("caller"), "pre_tool", "Bash")
        add_event(add_session("thinker"), "post_tool", "Bash")
        add_session("pending", "pending")
        parent = add_session("parent")
        add_session("child", parent_session=parent)
        add_session("over", "finished")
        asking = add_session("asking")
        asked(session_id=asking.pk, now=NOW)
        rows = load_session_board(NOW).rows
        assert {row.session.agent_name: row.state for row in rows} == {
            "asking": BoardState.WAITS_FOR_PERSON,
            "pending": BoardState.WAITS_FOR_RUNNER,
            "parent": BoardState.WAITS_FOR_AGENT,
            "caller": BoardState.IN_CALL,
            "thinker": BoardState.AT_WORK,
            "child": BoardState.AT_WORK,
        }
        assert [row.session.agent_name for row in rows][:3] == ["asking", "pending", "parent"]
        tools = {row.session.agent_name: row.tool_name for row in rows if row.tool_name}
        assert tools == {"caller": "Bash"}
        assert [child.pk for row in rows for child in row.waited_for] == ["ses_child"]

    def test_a_silent_session_is_idle(self, settings):
        add_event(add_session("caller"), "pre_tool", "Bash")
        later = NOW + timedelta(seconds=settings.SESSION_IDLE_AFTER + 1)
        assert [row.state for row in load_session_board(later).rows] == [BoardState.IDLE]

    def test_more_sessions_than_fit_are_counted(self):
        for number in range(MOST_ROWS + 3):
            add_session(f"robot{number}")
        board = load_session_board(NOW)
        assert (len(board.rows), board.total, board.hidden_row_count) == (MOST_ROWS, MOST_ROWS + 3, 3)

    def test_the_overview_shows_it(self):
        Agent.objects.create(id="agent.caller", name="The caller", default_engine_id="mind.x")
        session = add_session("caller")
        session.created_at = timezone.now()
        session.save()
        page = " ".join(signed_in("viewer").get("/ui/").content.decode().split())
        assert "At work now" in page
        assert "The caller" in page


class TestNeeds:
    def test_nothing_needs_a_person_where_nothing_is_wrong(self):
        assert list_things_needing_attention(NOW, is_admin=True) == []

    def test_each_thing_that_needs_somebody_is_counted(self):
        session = add_session("failed", "error")
        SessionGuard.objects.create(session=session, unguarded=2, counted_at=NOW)
        for name, age in (("held", 1), ("untaken", 10), ("new", 1)):
            run = Run.objects.create(
                run_id=name, session=session, type="start_session", prompt="",
                created_at=NOW - timedelta(minutes=age),
            )  # fmt: skip
            if name == "held":
                HeldRun.objects.create(run=run, since=NOW, why="imported")
        budget = Budget.objects.create(
            reach="everything", name="", span="day", measure="calls", amount=1, at_limit="hold",
            changed_at=NOW, changed_by="user:ann",
        )  # fmt: skip
        for level in (80, 100):
            BudgetMark.objects.create(budget=budget, about="2026-11-27", level=level, at=NOW)
        for server, problem in (("a", None), ("b", "expired")):
            McpAuthorization.objects.create(
                server_id=server, mode="shared", server_url="https://a.example", endpoints={}, client_id="c",
                client_auth="none", changed_by="user:ann", changed_at=NOW,
            )  # fmt: skip
            McpAccessToken.objects.create(server_id=server, access_token="sealed", problem=problem)
        McpCircuitBreaker.objects.create(
            server_id="a", failures=3, last_problem="timed out", last_failed_at=NOW,
            open_until=NOW + timedelta(minutes=1),
        )  # fmt: skip
        for key, days in (("ends", 3), ("stays", 30)):
            ApiKey.objects.create(
                name=key, prefix=key, key_hash=key, scopes=[], created_at=NOW,
                expires_at=NOW + timedelta(days=days),
            )  # fmt: skip
        Job.objects.create(name="prune", next_at=NOW, chosen_at=NOW, attempts=2, error="disk full")
        assert [need.text for need in list_things_needing_attention(NOW, is_admin=True)] == [
            "1 budget used up today",
            "1 run held until somebody releases them",
            "1 run that no runner takes",
            "1 session ended in an error in 24 hours",
            "1 session had calls without a guard in 24 hours",
            "1 MCP server without its sign-in",
            "1 MCP server cut off after failed calls",
            "1 API key to be replaced within a week",
            "1 background job failed and will be tried again",
        ]
        assert len(list_things_needing_attention(NOW, is_admin=False)) == 6

    def test_what_is_over_for_a_day_needs_nobody(self):
        session = add_session("failed", "error")
        SessionGuard.objects.create(session=session, unguarded=2, counted_at=NOW)
        assert list_things_needing_attention(NOW + timedelta(days=2), is_admin=True) == []

    def test_a_session_that_failed_lately_counts_however_long_it_ran_and_its_link_lists_the_same(self):
        now = timezone.now()
        for name, status, ended_hours in (
            ("long", "error", 1),
            ("over", "error", 25),
            ("good", "finished", 1),
        ):
            session = make_session(f"ses_{name}", status=status, created_at=now - timedelta(hours=30))
            add_events(session, [{"event_type": "session_stop", "at": now - timedelta(hours=ended_hours)}])
        make_session("ses_mute", status="error", created_at=now - timedelta(hours=2))
        session_sums.update_due_session_figures(now)
        (need,) = list_things_needing_attention(now, is_admin=False)
        assert need.text == "2 sessions ended in an error in 24 hours"
        rows = signed_in("viewer").get(need.url).context["rows"]
        assert {row.session.pk for row in rows} == {"ses_long", "ses_mute"}
