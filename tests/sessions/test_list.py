"""The list of sessions: what it says of each, what its filters let through, and what it costs."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from coordinator.actions.sessions import session_sums
from coordinator.feed.reader import FeedChange
from coordinator.live.pages import parse_requested_topics
from coordinator.models import ArchivedSession, PermissionContext, PermissionRequest, Run
from coordinator.sessions.list_facts import load_session_list_facts
from dashboard.lists import paginator, status_facets
from dashboard.sessions.rows import build_session_row_fragments, build_waiting_request_count_fragments
from dashboard.sessions.views.listing import MOST_FOLLOWED, PAGE
from tests.timelines import BEGAN, add_events, called, make_session, said

pytestmark = pytest.mark.django_db
HIDDEN = re.compile(r"<a[^>]*\shidden\s*>")


def listed(client, query=""):
    return [row.session.pk for row in client.get(f"/ui/sessions/{query}").context["rows"]]


def ask(session, status="pending"):
    request = PermissionRequest.objects.create(
        request_id=f"req-{session.pk}-{status}",
        created_at=BEGAN,
        plugin_id="p",
        permission_type="t",
        justification="j",
        status=status,
    )
    PermissionContext.objects.create(
        request=request, requested_by="key:x", session_id=session.pk, subject_key=request.request_id
    )


def test_an_empty_list_says_what_to_do(viewer):
    assert "No sessions yet" in viewer.get("/ui/sessions/").content.decode()


def test_newest_first_and_children_folded_into_their_parents(viewer):
    old = make_session("ses_old", created_at=BEGAN - timedelta(days=1))
    make_session("ses_new")
    make_session("ses_child", parent_session_id=old.pk)
    assert listed(viewer) == ["ses_new", "ses_old"]
    body = viewer.get("/ui/sessions/ses_old/-/children/").content.decode()
    assert 'data-child-of="ses_old"' in body


def test_facts_say_how_much_there_is_and_what_it_is_about():
    session, child = make_session("ses_a"), make_session("ses_b", parent_session_id="ses_a")
    add_events(
        session,
        [
            said("assistant", "hello"),
            said("user", "Fix  the\nbuild"),
            *called("Bash", {"c": 1}, error="no", at=9),
        ],
    )
    ask(session)
    ask(session, "denied")
    facts = load_session_list_facts(["ses_a", "ses_b"])
    assert (facts["ses_a"].title, facts["ses_a"].events, facts["ses_a"].errors) == ("Fix the build", 4, 1)
    assert (facts["ses_a"].children, facts["ses_a"].waiting) == (1, 1)
    assert facts["ses_a"].last == BEGAN + timedelta(seconds=9)
    assert facts[child.pk].events == 0


def test_without_a_message_the_first_prompt_says_what_it_is_about():
    session = make_session("ses_a")
    Run.objects.create(
        run_id="run_2",
        session=session,
        type="resume_session",
        prompt="and then",
        created_at=BEGAN + timedelta(1),
    )
    Run.objects.create(
        run_id="run_1", session=session, type="start_session", prompt="Do this", created_at=BEGAN
    )
    assert load_session_list_facts(["ses_a"])["ses_a"].title == "Do this"


def test_a_message_too_long_to_decode_still_gives_its_beginning():
    session = make_session("ses_a")
    add_events(session, [said("user", "Read this: " + "x" * 9000)])
    assert load_session_list_facts(["ses_a"])["ses_a"].title.startswith("Read this: xxx")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?status=running", ["ses_run"]),
        ("?agent=builder", ["ses_run"]),
        ("?host=elsewhere", ["ses_run"]),
        ("?dir=app", ["ses_run"]),
        ("?q=BUILDER+app", ["ses_run"]),
        ("?q=ses_err", ["ses_err"]),
        ("?q=nothing", []),
        ("?errors=true", ["ses_err"]),
        ("?waiting=true", ["ses_ask"]),
        ("?parent=ses_err", ["ses_kid"]),
        ("?since=2026-11-21", ["ses_run"]),
        ("?until=2026-11-19", []),
        ("?host=build-7&since=2026-11-20&until=2026-11-20", ["ses_kid", "ses_err", "ses_ask"]),
        ("?status=none", []),
    ],
)
def test_filters(viewer, query, expected):
    make_session(
        "ses_run",
        status="running",
        agent_name="builder",
        hostname="elsewhere",
        project_dir="/srv/App",
        created_at=BEGAN + timedelta(days=1),
    )
    add_events(make_session("ses_err"), called("Bash", {"c": 1}, error="boom"))
    ask(make_session("ses_ask"))
    make_session("ses_kid", parent_session_id="ses_err")
    assert listed(viewer, query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"finished": 1, "running": 1}),
        ("?parent=ses_p", {"finished": 1, "error": 1}),
        ("?parent=ses_p&archived=true", {"error": 1}),
        ("?archived=true", {"error": 1}),
        ("?parent=%25s", {}),
    ],
)
def test_the_numbers_of_statuses_are_of_the_sessions_that_the_list_is_about(viewer, query, expected):
    make_session("ses_p", status="running")
    make_session("ses_a", parent_session_id="ses_p")
    old = make_session("ses_b", parent_session_id="ses_p", status="error")
    ArchivedSession.objects.create(session=old, archived_at=BEGAN, archived_by="ann")
    statuses = viewer.get(f"/ui/sessions/{query}").context["statuses"]
    assert {facet.word: facet.count for facet in statuses} == expected
    for facet in statuses:
        assert len(listed(viewer, facet.query)) == facet.count


def test_sessions_are_found_by_how_long_ago_they_ended(viewer):
    now = timezone.now()
    for name, status, began_hours, ended_hours in (
        ("ses_long", "error", 30, 1),
        ("ses_over", "error", 30, 26),
        ("ses_late", "finished", 2, 25),  # its agent's clock is behind
        ("ses_live", "running", 2, 1),
        ("ses_mute", "stopped", 3, None),
        ("ses_dumb", "stopped", 30, None),
    ):
        session = make_session(name, status=status, created_at=now - timedelta(hours=began_hours))
        if ended_hours is not None:
            add_events(session, [{"event_type": "message", "at": now - timedelta(hours=ended_hours)}])
    session_sums.update_due_session_figures(now)
    assert set(listed(viewer, "?ended=24")) == {"ses_long", "ses_mute"}
    assert listed(viewer, "?ended=2.5") == ["ses_long"]
    assert set(listed(viewer, "?ended=9999999999")) == {
        "ses_long",
        "ses_over",
        "ses_late",
        "ses_mute",
        "ses_dumb",
    }


def test_dates_are_compared_as_instants_in_whatever_form_they_stand(viewer):
    texts = {
        "ses_far": "2026-11-01T12:00:00Z",
        "ses_before": "2026-11-20T00:30:00+01:00",
        "ses_in": "2026-11-19 23:59:59",
        "ses_on": "2026-11-20T23:59:59.999999+00:00",
        "ses_after": "2026-11-20T23:30:00-01:00",
        "ses_odd": "yesterday",
    }
    with connection.cursor() as cursor:
        for name, text in texts.items():
            cursor.execute(
                "INSERT INTO sessions (session_id, status, created_at) VALUES (%s, 'x', %s)", [name, text]
            )
    assert set(listed(viewer, "?since=2026-11-20")) == {"ses_on", "ses_after"}
    assert set(listed(viewer, "?until=2026-11-19")) == {"ses_far", "ses_before", "ses_in"}
    assert set(listed(viewer, "?since=2026-11-19&until=2026-11-20")) == {"ses_before", "ses_in", "ses_on"}


@pytest.mark.parametrize(
    "query",
    [
        "?page=x",
        "?page=999",
        "?sort=nothing",
        "?since=when",
        "?errors=maybe",
        "?until=9999-12-31",
        "?since=0001-01-01",
        "?parent=a/b",
        "?ended=x",
        "?ended=-1",
        "?ended=9999999999",
        "?ended=1e300",
    ],
)
def test_an_odd_query_is_no_error(viewer, query):
    make_session()
    assert viewer.get(f"/ui/sessions/{query}").status_code == 200


def test_sorting_by_agent(viewer):
    make_session("ses_b", agent_name="beta")
    make_session("ses_a", agent_name="alpha")
    assert listed(viewer, "?sort=agent") == ["ses_a", "ses_b"]


def queries_for(client):
    with CaptureQueriesContext(
        connection,
    ) as seen:
        client.get("/ui/sessions/")
    return len(seen)


def test_no_query_is_asked_per_row(viewer):
    make_session("ses_0")
    few = queries_for(viewer)
    for number in range(1, 20):
        add_events(make_session(f"ses_{number}"), [said("user", "x"), *called("Bash", {"c": 1}, error="no")])
    assert queries_for(viewer) == few


def test_a_changed_session_is_told_to_every_list_that_shows_it():
    session = make_session('ses_"odd]')
    (fragment,) = build_session_row_fragments(FeedChange(1, 0, "sessions", session.pk, None, "update"))
    assert fragment.target == '[data-session-row="ses_\\22 odd]"]'
    assert "ses_&quot;odd]" in fragment.html


def test_new_and_deleted_sessions_move_nothing():
    session = make_session()
    assert build_session_row_fragments(FeedChange(1, 0, "sessions", session.pk, None, "insert")) == []
    assert build_session_row_fragments(FeedChange(1, 0, "sessions", "gone", None, "update")) == []


@pytest.mark.parametrize("name", ["a/b", "?x", "ü", 'ses "quoted"'])
def test_any_id_is_listed_and_linked(viewer, name):
    make_session(name)
    assert listed(viewer) == [name]


def test_the_choices_are_what_the_column_holds_in_order_and_once(viewer):
    for number, host in enumerate(("zeta", "alpha", None, "zeta")):
        make_session(f"ses_{number}", hostname=host, agent_name=None)
    context = viewer.get("/ui/sessions/").context
    assert (context["hosts"], context["agents"]) == (["alpha", "zeta"], [])


def test_the_list_listens_to_the_events_of_what_runs(viewer):
    for name, status in (("ses_run", "running"), ("ses_over", "finished"), ("with blank", "running")):
        make_session(name, status=status)
    assert viewer.get("/ui/sessions/").context["followed"] == ["ses_run"]


def test_a_list_full_of_running_sessions_asks_for_no_more_than_a_stream_takes(viewer):
    for number in range(PAGE):
        make_session(f"ses_{number}", status="running")
    page = viewer.get("/ui/sessions/").content.decode()
    topics = re.search(r'data-live-topics="([^"]*)"', page)[1].split()
    assert len([topic for topic in topics if topic.startswith("session_row:")]) == MOST_FOLLOWED
    assert parse_requested_topics(urlencode({"topics": " ".join(topics)}).encode()) == frozenset(topics)


def test_rows_are_told_as_they_are_now(viewer):
    add_events(make_session("ses_a"), [said("user", "x"), *called("Bash", {"c": 1}, error="no")])
    make_session("ses_b")
    body = viewer.get("/ui/sessions/-/rows/?id=ses_a&id=gone").content.decode()
    assert 'data-label="Events">3<' in body
    assert "ses_b" not in body


def test_a_request_that_changed_tells_how_many_wait_wherever_its_session_says_so():
    session = make_session('ses_"odd]')
    for status in ("pending", "approved"):
        ask(session, status)
    told = []
    for request in PermissionRequest.objects.order_by("pk"):
        told += build_waiting_request_count_fragments(
            FeedChange(1, 0, "permission_requests", str(request.pk), "p", "update")
        )
    chip, cell = '[data-session-waiting="ses_\\22 odd]"]', '[data-session-waiting-count="ses_\\22 odd]"]'
    assert {fragment.target for fragment in told} == {chip, cell}
    for fragment in told:
        assert not HIDDEN.search(fragment.html)
        assert ("1 waiting" if fragment.target == chip else ">1</a>") in fragment.html
    PermissionRequest.objects.update(status="denied")
    now = build_waiting_request_count_fragments(
        FeedChange(2, 0, "permission_requests", str(request.pk), "p", "update")
    )
    html = {fragment.target: fragment.html for fragment in now}
    assert HIDDEN.search(html[chip])
    assert "<a" not in html[cell]
    assert ">0</span>" in html[cell]


def test_the_number_that_waits_leads_to_the_sessions_requests(viewer):
    session = make_session("ses a&b")
    for status in ("pending", "approved"):
        ask(session, status)
    body = viewer.get("/ui/sessions/").content.decode()
    (cell,) = re.findall(r'<td[^>]*data-label="Waiting">(.*?)</td>', body, re.DOTALL)
    (address,) = re.findall(r'href="([^"]*)"', cell)
    assert ">1</a>" in cell
    assert viewer.get(unescape(address)).context["inbox"].matching == 1


def test_a_request_of_no_session_tells_nothing():
    request = PermissionRequest.objects.create(
        request_id="alone", created_at=BEGAN, plugin_id="p", permission_type="t", justification="j"
    )
    assert (
        build_waiting_request_count_fragments(
            FeedChange(1, 0, "permission_requests", str(request.pk), "p", "insert")
        )
        == []
    )
    for key in (request.request_id, "9" * 30, "²"):  # as a vote's change names its request
        assert (
            build_waiting_request_count_fragments(FeedChange(2, 0, "permission_requests", key, "p", "insert"))
            == []
        )


def test_every_cell_follows_the_events_or_is_known_to_stay(viewer):
    """A new column says which: one that changes with events takes `data-follows`, another stands here."""
    make_session("ses_a")
    cells = re.findall(r"<td([^>]*)>", viewer.get("/ui/sessions/-/rows/?id=ses_a").content.decode())
    staying = [cell for cell in cells if "data-follows=" not in cell]
    assert [re.findall('data-label="(.*?)"', cell) for cell in staying] == [
        [],  # the box
        [],  # the title
        ["Agent"],
        ["Host"],
        ["Started"],
    ]
    following = ["state", "person", "took", "cost", "tokens", "files", "events", "errors", "waiting-count"]
    assert re.findall('data-follows="(.*?)"', " ".join(cells)) == following


def test_what_a_row_says_in_its_second_line_follows_the_events(viewer):
    make_session("ses_a")
    row = viewer.get("/ui/sessions/-/rows/?id=ses_a").content.decode()
    assert "waiting" in set(re.findall('data-follows="(.*?)"', row))


@pytest.mark.parametrize("query", ["?", "?q=ses", "?dir=app"])
def test_a_longer_list_than_is_counted_says_so(viewer, monkeypatch, query):
    monkeypatch.setattr(paginator, "COUNTED", 30)
    monkeypatch.setattr(status_facets, "COUNTED", 30)
    for number in range(31):
        make_session(f"ses_{number:02}", project_dir="/srv/app", created_at=BEGAN + timedelta(seconds=number))
    answer = viewer.get(f"/ui/sessions/{query}&page=2")
    assert [row.session.pk for row in answer.context["rows"]] == [f"ses_{n:02}" for n in (5, 4, 3, 2, 1)]
    body = answer.content.decode()
    assert "of the first 30 sessions; filter to see more" in " ".join(body.split())
    assert '<span class="count">30+</span>' in body
