"""Numbers, lists and exports of sessions that disagree."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from coordinator.actions.search import indexing as search
from coordinator.actions.sessions import session_sums
from coordinator.feed.reader import FeedChange
from coordinator.models import (
    ArchivedSession,
    PermissionContext,
    PermissionRequest,
    PermissionVote,
    SessionChange,
    SessionFigures,
)
from coordinator.sessions.timeline import (
    load_session_event_counts,
    load_timeline_changes,
    newest_feed_change_id,
    updates,
)
from dashboard.overview.attention_items import list_things_needing_attention
from dashboard.sessions.summary import load_session_summary
from dashboard.timeline.updates import draw_timeline_updates
from tests.people import signed_in
from tests.timelines import BEGAN, add_events, called, make_session, said

pytestmark = pytest.mark.django_db


def settle():
    search.index_slice_and_count_events(BEGAN)
    session_sums.update_due_session_figures(BEGAN)


def summary_of(session):
    return load_session_summary(session, load_session_event_counts(session.pk))


def ask(session, name="req-a", status="pending", minutes=0, waited=None):
    request = PermissionRequest.objects.create(
        request_id=name,
        created_at=BEGAN + timedelta(minutes=minutes),
        plugin_id="p",
        permission_type="t",
        justification="j",
        status=status,
        approved_at=None if waited is None else BEGAN + timedelta(minutes=minutes + waited),
    )
    PermissionContext.objects.create(
        request=request, requested_by="key:x", session_id=session.pk, subject_key=name
    )
    return request


def test_a_vote_is_no_error_for_an_open_page():
    session = make_session(status="running")
    since = newest_feed_change_id()
    request = ask(session)
    PermissionVote.objects.create(request=request, voter="ann", validity="once", at=BEGAN)
    response = signed_in("viewer").get(f"/ui/sessions/{session.pk}/-/new/", {"since": str(since)})
    assert response.status_code == 200


def test_a_vote_is_no_error_for_the_stream():
    session = make_session(status="running")
    request = ask(session)
    draw_timeline_updates(
        session.pk, [FeedChange(1, 0, "permission_requests", request.request_id, None, "update")]
    )


def test_odd_since():
    session = make_session(status="running")
    assert signed_in("viewer").get(f"/ui/sessions/{session.pk}/-/new/", {"since": "²"}).status_code == 200


def test_denied_writes_changed_nothing_anywhere():
    session = make_session("ses_a", project_dir="/srv/app")
    add_events(
        session,
        [
            *called("Edit", {"file_path": "/srv/app/a.py"}, use="1"),
            {
                "event_type": "pre_tool",
                "tool_name": "Write",
                "tool_input": {"file_path": "/denied"},
                "tool_use_id": "6",
            },
        ],
    )
    settle()
    assert SessionFigures.objects.get(pk="ses_a").files_changed == 1
    assert summary_of(session).changes.files == 1


def test_a_comparison_that_failed_hides_no_files():
    session = make_session("ses_a", project_dir="/srv/app")
    add_events(session, called("Edit", {"file_path": "/srv/app/a.py"}, use="1"))
    SessionChange.objects.create(
        session=session, run_id="", told_at=BEGAN, files=[], problem="git is missing"
    )
    settle()
    assert SessionFigures.objects.get(pk="ses_a").files_changed == 1
    assert summary_of(session).changes.files == 1


def test_people_are_waited_for_once_where_two_requests_wait_at_once():
    session = make_session()
    ask(session, "a", "approved", 0, 10)
    ask(session, "b", "approved", 0, 10)
    assert summary_of(session).waits.total == timedelta(minutes=10)


def test_an_archived_error_is_not_counted_where_the_list_does_not_show_it():
    now = timezone.now()
    make_session("ses_a", status="error", created_at=now - timedelta(hours=1))
    ArchivedSession.objects.create(session_id="ses_a", archived_by="x", archived_at=now)
    (need,) = list_things_needing_attention(now, is_admin=False) or [None]
    assert need is None or [row.session.pk for row in signed_in("viewer").get(need.url).context["rows"]] == [
        "ses_a"
    ]


def test_took_is_filtered_by_what_is_shown(client):
    """A run that waited an hour for its runner took an hour, says the list."""
    session = make_session("ses_a")
    add_events(session, [said("user", "x", at=3600), said("assistant", "y", at=3660)])
    settle()
    browser = signed_in("viewer")
    (row,) = browser.get("/ui/sessions/").context["rows"]
    shown = row.facts.last - row.began_at
    assert shown == timedelta(minutes=61)
    assert [row.session.pk for row in browser.get("/ui/sessions/?minutes=30").context["rows"]] == ["ses_a"]


def test_a_live_session_without_events_is_found_by_its_duration():
    make_session("ses_a", status="pending", created_at=timezone.now() - timedelta(hours=2))
    settle()
    browser = signed_in("viewer")
    assert [row.session.pk for row in browser.get("/ui/sessions/?minutes=30").context["rows"]] == ["ses_a"]


@pytest.mark.django_db(transaction=True)  # the feed tells of what is committed
def test_an_export_says_how_long_a_running_session_has_taken():
    session = make_session("ses_a", status="running", created_at=timezone.now() - timedelta(hours=2))
    add_events(
        session,
        [
            said("user", "x", at=timezone.now() - timedelta(hours=2)),
            said("assistant", "y", at=timezone.now() - timedelta(minutes=119)),
        ],
    )
    settle()
    browser = signed_in("viewer")
    text = b"".join(browser.get("/ui/sessions/-/export.ndjson?minutes=60").streaming_content).decode()
    assert json.loads(text)["duration_seconds"] >= 3600


def test_a_tree_says_that_ancestors_are_left_out():
    for number in range(9):
        make_session(f"ses_{number}", parent_session_id=f"ses_{number - 1}" if number else None)
    tree = signed_in("viewer").get("/ui/sessions/ses_8/-/tree/").context["tree"]
    assert "ses_8" in [row.pk for row in tree.all_sessions]
    assert not tree.is_whole


def test_a_tree_has_the_session_that_it_is_of():
    make_session("ses_p")
    for number in range(80):
        make_session(
            f"ses_{number:02}", parent_session_id="ses_p", created_at=BEGAN + timedelta(seconds=number)
        )
    tree = signed_in("viewer").get("/ui/sessions/ses_79/-/tree/").context["tree"]
    assert "ses_79" in [row.pk for row in tree.all_sessions]


@pytest.mark.django_db(transaction=True)  # the feed tells of what is committed
def test_more_requests_than_are_shown_one_by_one_are_not_left_out(monkeypatch):
    monkeypatch.setattr(updates, "MOST_EVENTS", 3)
    other, session = make_session("ses_o"), make_session("ses_a", status="running")
    since = newest_feed_change_id()
    mine = [ask(session, "mine")]
    for number in range(9):
        ask(other, f"other-{number}")
    mine.append(ask(session, "mine-2"))
    changes = load_timeline_changes("ses_a", since)
    assert changes.too_many or {row.pk for row in mine} <= set(changes.request_ids)


def test_calls_that_name_no_tool_are_found_by_the_filter_that_counts_them():
    session = make_session()
    add_events(
        session,
        [
            {"event_type": "pre_tool"},
            {"event_type": "pre_tool", "tool_name": ""},
            {"event_type": "pre_tool", "tool_name": "tool"},
            {"event_type": "message"},
            *called("Bash", {"command": "x"}),
        ],
    )
    browser = signed_in("viewer")
    tools = browser.get(f"/ui/sessions/{session.pk}/").context["tools"]
    assert [(facet.key, facet.count) for facet in tools] == [("tool", 3), ("Bash", 1)]
    for facet in tools:
        rows = browser.get(f"/ui/sessions/{session.pk}/{facet.query}").context["rows"]
        assert len(rows) == facet.count
