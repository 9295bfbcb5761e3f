"""The sums that the list of sessions sorts and narrows by, and how housekeeping keeps them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coordinator.actions.search import indexing as search
from coordinator.actions.sessions import session_sums
from coordinator.actions.sessions.events import record_events
from coordinator.feed import reader as feed
from coordinator.lib import instants
from coordinator.models import ModelRequestUsage, SessionChange, SessionFigures, SessionOwner
from coordinator.sessions.events import NewEvent
from tests.timelines import BEGAN, add_events, called, make_session, said

pytestmark = pytest.mark.django_db
BEGAN_US = instants.instant_to_microseconds(BEGAN)


def use_model(session_id, cost, tokens=10):
    ModelRequestUsage.objects.create(
        request_key=f"{session_id}:{cost}:{tokens}",
        session_id=session_id,
        at_us=BEGAN_US,
        day="2026-11-20",
        model="m",
        input_tokens=tokens,
        output_tokens=0,
        cache_read_tokens=0,
        cache_write_5m_tokens=0,
        cache_write_1h_tokens=0,
        reasoning_tokens=0,
        tool_tokens=0,
        web_searches=0,
        is_fast=False,
        is_batch=False,
        is_long_context=False,
        cost=cost,
        source="hook",
    )


def settle():
    """Let the index and the figures follow what has happened."""
    search.index_slice_and_count_events(BEGAN)
    session_sums.update_due_session_figures(BEGAN)


def figures_of(session_id):
    settle()
    return SessionFigures.objects.get(pk=session_id)


def listed(client, query=""):
    return [row.session.pk for row in client.get(f"/ui/sessions/{query}").context["rows"]]


def test_figures_sum_usage_and_say_when_a_session_began_and_ended():
    session = make_session("ses_a")
    add_events(session, [said("user", "x", at=-5), said("assistant", "y", at=60)])
    use_model("ses_a", 0.5, 100)
    use_model("ses_a", None, 7)
    SessionOwner.objects.create(session=session, person="dora")
    row = figures_of("ses_a")
    assert (row.cost, row.tokens, row.person) == (0.5, 107, "dora")
    assert (row.began_us, row.ended_us) == (BEGAN_US - 5_000_000, BEGAN_US + 60_000_000)


def test_of_a_session_without_usage_and_events_only_its_beginning_is_known():
    make_session("ses_a")
    row = figures_of("ses_a")
    assert (row.cost, row.tokens, row.began_us, row.ended_us, row.files_changed) == (
        None,
        None,
        BEGAN_US,
        None,
        0,
    )


def test_changed_files_are_those_that_writing_calls_changed_each_once():
    session = make_session("ses_a", project_dir="/srv/app")
    add_events(
        session,
        [
            *called("Edit", {"file_path": "/srv/app/a.py"}, use="1"),
            *called("Write", {"file_path": "/srv/app/a.py"}, use="2"),
            *called("Write", {"file_path": "/srv/app/b.py"}, use="3"),
            *called("Edit", {"file_path": "/srv/app/failed.py"}, use="4", error="no such file"),
            *called("Read", {"file_path": "/srv/app/read.py"}, use="5"),
            {
                "event_type": "pre_tool",
                "tool_name": "Write",
                "tool_input": {"file_path": "/denied"},
                "tool_use_id": "6",
            },
        ],
    )
    assert figures_of("ses_a").files_changed == 2


def test_the_comparison_of_a_runner_goes_before_what_calls_named():
    session = make_session("ses_a")
    add_events(session, called("Edit", {"file_path": "/srv/app/a.py"}, use="1"))
    files = [{"path": f"{number}.py", "status": "M", "added": 1, "removed": 0} for number in range(3)]
    SessionChange.objects.create(session=session, run_id="", told_at=BEGAN, files=files)
    assert figures_of("ses_a").files_changed == 3


def test_figures_follow_new_events_and_what_changes_without_one():
    session = make_session("ses_a")
    add_events(session, [said("user", "x")])
    assert figures_of("ses_a").ended_us == BEGAN_US
    record_events(
        [
            NewEvent(
                session_id="ses_a", event_type="message", timestamp=(BEGAN + timedelta(minutes=1)).isoformat()
            )
        ],
        BEGAN,
    )
    assert figures_of("ses_a").ended_us == BEGAN_US + 60_000_000
    use_model("ses_a", 2.0)  # a price that is known later: nothing of the session changes
    assert figures_of("ses_a").cost == 2.0


def test_a_round_mends_what_differs_and_is_no_news_for_pages():
    make_session("ses_a")
    settle()
    newest = feed.find_newest_change_id()
    before = SessionFigures.objects.get(pk="ses_a")
    SessionFigures.objects.filter(pk="ses_a").update(person="changed by nobody")
    settle()
    assert SessionFigures.objects.get(pk="ses_a").person == before.person
    assert feed.find_newest_change_id() == newest


def test_a_round_goes_through_all_sessions_in_steps(monkeypatch):
    monkeypatch.setattr(session_sums, "STEP", 2)
    for number in range(5):
        make_session(f"ses_{number}")
    session_sums.save_figures_progress(feed.find_newest_change_id(), "")
    search.index_slice_and_count_events(BEGAN)
    for expected in (2, 4, 5):
        session_sums.update_due_session_figures(BEGAN)
        assert SessionFigures.objects.count() == expected
    assert session_sums.load_figures_progress()[1] == ""


def test_figures_go_with_their_session():
    session = make_session("ses_a")
    settle()
    session.delete()
    assert not SessionFigures.objects.exists()


@pytest.fixture
def three(db):
    """Three sessions: one dear and long, one cheap and short, one of which nothing is known yet."""
    for name, cost, seconds, tokens in (("ses_dear", 9.0, 600, 900), ("ses_cheap", 0.1, 30, 5000)):
        add_events(make_session(name), [said("user", "x"), said("assistant", "y", at=seconds)])
        use_model(name, cost, tokens)
    settle()
    make_session("ses_new", created_at=BEGAN - timedelta(days=1))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?sort=-cost", ["ses_dear", "ses_cheap", "ses_new"]),
        ("?sort=cost", ["ses_cheap", "ses_dear", "ses_new"]),
        ("?sort=-tokens", ["ses_cheap", "ses_dear", "ses_new"]),
        ("?sort=-took", ["ses_dear", "ses_cheap", "ses_new"]),
        ("?sort=took", ["ses_cheap", "ses_dear", "ses_new"]),
        ("?cost=1", ["ses_dear"]),
        ("?tokens=1000", ["ses_cheap"]),
        ("?minutes=5", ["ses_dear"]),
        ("?minutes=0.1&cost=0.05&sort=-cost", ["ses_dear", "ses_cheap"]),
        ("?minutes=60", []),
    ],
)
def test_the_list_sorts_and_narrows_by_figures(viewer, three, query, expected):
    assert listed(viewer, query) == expected


def test_a_session_at_work_has_taken_the_time_until_now(viewer, three):
    add_events(make_session("ses_live", status="running"), [said("user", "x")])
    settle()
    assert listed(viewer, "?sort=-took")[0] == "ses_live"


@pytest.mark.parametrize(
    "query",
    [
        "?cost=x",
        "?cost=-1",
        "?cost=NaN",
        "?tokens=9e99",
        "?minutes=9e40",
        "?tokens=1.5",
        "?sort=-nothing,cost",
    ],
)
def test_odd_figures_are_no_error(viewer, three, query):
    assert viewer.get(f"/ui/sessions/{query}").status_code == 200


def test_the_list_narrows_to_who_started_sessions(viewer):
    SessionOwner.objects.create(session=make_session("ses_hers"), person="dora")
    make_session("ses_other")
    settle()
    page = viewer.get("/ui/sessions/?person=dora")
    assert [row.session.pk for row in page.context["rows"]] == ["ses_hers"]
    assert page.context["people"] == ["dora"]
