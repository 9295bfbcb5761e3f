"""Tags, pins, the archive, saved views, columns and exports of the list of sessions."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.template.loader import render_to_string

from coordinator.actions.sessions import session_lists
from coordinator.errors import BadRequest, Forbidden, NotFound
from coordinator.models import (
    ArchivedSession,
    AuditLog,
    SavedSessionView,
    Session,
    SessionPin,
    SessionTag,
)
from dashboard.sessions.rows import load_session_rows
from dashboard.sessions.tables import COLUMN_LABELS
from tests.people import person
from tests.timelines import BEGAN, add_events, make_session, said

pytestmark = pytest.mark.django_db


@pytest.fixture
def approver(sign_in):
    return sign_in("approver")


def listed(client, query=""):
    context = client.get(f"/ui/sessions/{query}").context
    return [row.session.pk for row in [*context["pinned_rows"], *context["rows"]]]


def keep(client, do, *session_ids, back="", follow=True, **fields):
    data = {"do": do, "chosen": session_ids, "back": back, **fields}
    return client.post("/ui/sessions/-/keep/", data, follow=follow)


def message_of(answer):
    return [str(message) for message in answer.context["messages"]]


def audited():
    return list(AuditLog.objects.order_by("id").values_list("event_type", "target_id"))


# --- tags -------------------------------------------------------------------------------------------------------


def test_an_approver_tags_several_sessions_and_the_list_narrows_to_a_tag(approver):
    for name in ("ses_a", "ses_b", "ses_c"):
        make_session(name)
    answer = keep(approver, "tag", "ses_a", "ses_b", tags=" Release  blocker, ")
    assert message_of(answer) == ["2 sessions tagged."]
    assert set(listed(approver, "?tag=release+blocker")) == {"ses_a", "ses_b"}
    page = approver.get("/ui/sessions/").content.decode()
    assert page.count('?tag=release%20blocker">release blocker</a>') == 2
    assert audited() == [("SESSION_TAGGED", "ses_a"), ("SESSION_TAGGED", "ses_b")]
    assert AuditLog.objects.first().metadata == {"before": [], "after": ["release blocker"]}
    keep(approver, "untag", "ses_a", "ses_c", tags="release blocker")
    assert listed(approver, "?tag=release+blocker") == ["ses_b"]
    assert audited()[2:] == [("SESSION_TAGGED", "ses_a")]


def test_a_viewer_cannot_tag_or_archive(viewer):
    make_session("ses_a")
    for do in ("tag", "untag", "archive", "restore"):
        answer = keep(viewer, do, "ses_a", tags="x")
        assert "role approver" in message_of(answer)[0]
    assert not SessionTag.objects.exists()
    assert not ArchivedSession.objects.exists()
    with pytest.raises(Forbidden):
        session_lists.replace_session_tags(
            "ses_a", ["x"], user=User.objects.get(username="viewer"), now=BEGAN
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a, B ,a", ["a", "b"]), ("  two   words ", ["two words"]), (", ,", []), ("Ü", ["ü"])],
)
def test_tags_are_read_in_one_form(text, expected):
    assert session_lists.parse_session_tags(text) == expected


def test_too_long_and_too_many_tags_are_refused_whole(approver):
    make_session("ses_a")
    with pytest.raises(BadRequest):
        session_lists.parse_session_tags("x" * 41)
    answer = keep(approver, "tag", "ses_a", tags=",".join(f"t{number}" for number in range(21)))
    assert "at most 20 tags" in message_of(answer)[0]
    assert not SessionTag.objects.exists()


def test_the_page_of_one_session_replaces_its_tags_and_keeps_what_was_typed_wrongly(approver):
    make_session("ses_a")
    url = "/ui/sessions/ses_a/-/keep/"
    keep(approver, "tag", "ses_a", tags="old, both")
    assert 'value="both, old"' in approver.get(url).content.decode()
    assert approver.post(url, {"do": "save-tags", "tags": "both, new"}).status_code == 302
    assert session_lists.load_session_tags("ses_a") == ["both", "new"]
    wrong = approver.post(url, {"do": "save-tags", "tags": "y" * 41})
    assert wrong.status_code == 422
    assert "y" * 41 in wrong.content.decode()
    assert "at most 40 characters" in wrong.content.decode()
    approver.post(url, {"do": "save-tags", "tags": ""})
    assert session_lists.load_session_tags("ses_a") == []


# --- pins -------------------------------------------------------------------------------------------------------


def test_pinned_sessions_come_first_for_who_pinned_them_alone(viewer, approver):
    for number in range(3):
        make_session(f"ses_{number}", created_at=BEGAN + timedelta(seconds=number))
    keep(viewer, "pin", "ses_0")
    assert listed(viewer) == ["ses_0", "ses_2", "ses_1"]
    assert listed(approver) == ["ses_2", "ses_1", "ses_0"]
    assert listed(viewer, "?status=finished") == ["ses_2", "ses_1", "ses_0"]
    assert listed(viewer, "?sort=started") == ["ses_0", "ses_1", "ses_2"]
    assert audited() == [("SESSION_PINNED", "ses_0")]
    keep(viewer, "unpin", "ses_0")
    assert listed(viewer) == ["ses_2", "ses_1", "ses_0"]
    assert audited()[1:] == [("SESSION_UNPINNED", "ses_0")]


def test_pinned_sessions_stand_on_the_first_page_alone_and_once(viewer):
    for number in range(60):
        make_session(f"ses_{number:02}", created_at=BEGAN + timedelta(seconds=number))
    keep(viewer, "pin", "ses_00", "ses_59")
    pages = [listed(viewer, f"?page={number}") for number in (1, 2, 3)]
    assert pages[0][:3] == ["ses_59", "ses_00", "ses_58"]
    assert sorted(name for page in pages for name in page) == [f"ses_{number:02}" for number in range(60)]


def test_the_pin_of_a_row_turns_and_the_list_comes_back_with_the_same_order(viewer):
    make_session("ses_a", agent_name="alpha")
    make_session("ses_b", agent_name="beta")
    answer = viewer.post(
        "/ui/sessions/-/keep/",
        {"toggle-pin": "ses_b", "back": "sort=agent"},
        headers={"HX-Request": "true"},
    )
    assert [row.session.pk for row in answer.context["pinned_rows"]] == ["ses_b"]
    assert "Pinned by you" in answer.content.decode()
    assert "sort=-agent" in answer.content.decode()
    viewer.post("/ui/sessions/-/keep/", {"toggle-pin": "ses_b"}, headers={"HX-Request": "true"})
    assert not SessionPin.objects.exists()


def test_a_refused_pin_leads_to_the_page_that_says_why(viewer):
    answer = viewer.post(
        "/ui/sessions/-/keep/", {"toggle-pin": "gone", "back": "q=x"}, headers={"HX-Request": "true"}
    )
    assert answer.headers["HX-Redirect"] == "/ui/sessions/?q=x"
    assert message_of(viewer.get("/ui/sessions/?q=x")) == ["Session not found"]


def test_a_person_pins_only_so_many(viewer, monkeypatch):
    monkeypatch.setattr(session_lists, "MAX_PINS", 2)
    for name in ("ses_a", "ses_b", "ses_c"):
        make_session(name)
    answer = keep(viewer, "pin", "ses_a", "ses_b", "ses_c")
    assert "at most 2 sessions" in message_of(answer)[0]
    assert not SessionPin.objects.exists()


# --- the archive ------------------------------------------------------------------------------------------------


def test_an_archived_session_leaves_the_list_with_its_children_and_comes_back(approver):
    make_session("ses_old", status="finished")
    make_session("ses_child", parent_session_id="ses_old")
    make_session("ses_grandchild", parent_session_id="ses_child")
    make_session("ses_other", status="error")
    assert message_of(keep(approver, "archive", "ses_old")) == ["1 session archived."]
    assert listed(approver) == ["ses_other"]
    assert listed(approver, "?status=finished") == []
    assert listed(approver, "?q=ses") == ["ses_other"]
    assert listed(approver, "?archived=true") == ["ses_old"]
    assert listed(approver, "?parent=ses_old") == ["ses_child"]
    assert set(listed(approver, "?archived=true&q=child")) == {"ses_child", "ses_grandchild"}
    assert Session.objects.count() == 4
    assert audited() == [("SESSION_ARCHIVED", "ses_old")]
    assert AuditLog.objects.get().metadata == {"children": 2}
    keep(approver, "restore", "ses_old", back="archived=true")
    assert set(listed(approver, "?status=finished")) == {"ses_old", "ses_child", "ses_grandchild"}
    assert audited()[1:] == [("SESSION_RESTORED", "ses_old")]


def test_the_numbers_of_the_statuses_are_of_what_is_listed(approver):
    for name, status in (("ses_a", "finished"), ("ses_b", "finished"), ("ses_c", "error")):
        make_session(name, status=status)
    keep(approver, "archive", "ses_a", "ses_c")
    numbers = lambda query: {  # noqa: E731
        facet.word: facet.count for facet in approver.get(f"/ui/sessions/{query}").context["statuses"]
    }
    assert numbers("") == {"finished": 1}
    assert numbers("?archived=true") == {"finished": 1, "error": 1}


def test_nothing_found_points_to_the_archive_and_an_empty_archive_says_what_it_is_for(approver):
    make_session("ses_a")
    assert "The archive is empty" in approver.get("/ui/sessions/?archived=true").content.decode()
    keep(approver, "archive", "ses_a")
    page = approver.get("/ui/sessions/?q=ses_a").content.decode()
    assert re.search(r'href="\?q=ses_a&amp;archived=true"[^>]*>look in the archive', page)


def test_one_session_is_archived_and_pinned_on_its_own_page(approver):
    make_session("ses_a")
    url = "/ui/sessions/ses_a/-/keep/"
    for do, words in (
        ("archive", "approver archived the session"),
        ("restore", "Archive session"),
        ("pin", "Unpin session"),
        ("unpin", "Pin session"),
    ):
        answer = approver.post(url, {"do": do}, follow=True)
        assert words in answer.content.decode()


# --- what cannot be done -------------------------------------------------------------------------------------------


def test_odd_choices_change_nothing_and_say_so(approver):
    make_session("ses_a")
    for data in (
        {"do": "archive"},
        {"do": "archive", "chosen": "gone"},
        {"do": "archive", "chosen": [f"ses_{number}" for number in range(201)]},
        {"do": "delete", "chosen": "ses_a"},
        {"do": "tag", "chosen": "ses_a", "tags": " , "},
        {},
    ):
        answer = approver.post("/ui/sessions/-/keep/", data, follow=True)
        assert answer.status_code == 200
        assert len(message_of(answer)) == 1
    assert not AuditLog.objects.exists()


def test_what_leads_back_stays_on_the_list(approver):
    make_session("ses_a")
    answer = keep(approver, "pin", "ses_a", back="//evil.example/", follow=False)
    assert answer.headers["Location"] == "/ui/sessions/?//evil.example/"


def test_what_people_keep_goes_with_the_session(approver):
    session = make_session("ses_a")
    for do in ("pin", "archive"):
        keep(approver, do, "ses_a")
    keep(approver, "tag", "ses_a", tags="x")
    session.delete()
    assert not any(model.objects.exists() for model in (SessionTag, SessionPin, ArchivedSession))


# --- a person's own list --------------------------------------------------------------------------------------------


def test_the_columns_that_a_person_chose_are_shown_to_them_alone(viewer, approver):
    make_session("ses_a")
    viewer.post("/ui/sessions/-/columns/", {"column": ["tokens", "files", "odd"]})
    shown = lambda client: {  # noqa: E731
        column.name for column in client.get("/ui/sessions/").context["columns"] if column.is_shown
    }
    assert shown(viewer) == {"tokens", "files"}
    assert "cost" in shown(approver)
    table = re.search(r'<table\s+class="([^"]*)"', viewer.get("/ui/sessions/").content.decode())[1]
    assert "without-cost" in table
    assert "without-tokens" not in table


def test_every_column_has_cells_that_its_choice_hides():
    styles = Path("static/css/lists.css").read_text(encoding="utf-8")
    make_session("ses_a")
    (row,) = load_session_rows(Session.objects.all())
    cells = render_to_string("sessions/_list_row.html", {"row": row})
    for name in COLUMN_LABELS:
        assert f"col-{name}" in cells
        assert f"&.without-{name} .col-{name}" in styles


def test_a_view_is_saved_without_its_page_replaced_by_its_name_and_deleted_by_its_owner(viewer, approver):
    viewer.post("/ui/sessions/-/views/", {"name": "Dear ones", "back": "sort=-cost&cost=1&page=3"})
    view = SavedSessionView.objects.get()
    assert view.query == "sort=-cost&cost=1"
    assert 'href="/ui/sessions/?sort=-cost&amp;cost=1"' in viewer.get("/ui/sessions/").content.decode()
    assert "Dear ones" not in approver.get("/ui/sessions/").content.decode()
    viewer.post("/ui/sessions/-/views/", {"name": " Dear  ones", "back": "cost=9"})
    assert SavedSessionView.objects.get().query == "cost=9"
    approver.post("/ui/sessions/-/views/", {"delete": str(view.pk)})
    assert SavedSessionView.objects.exists()
    viewer.post("/ui/sessions/-/views/", {"delete": str(view.pk)})
    assert not SavedSessionView.objects.exists()


@pytest.mark.parametrize(
    "data",
    [
        {"name": ""},
        {"name": "x" * 61},
        {"delete": "x"},
        {"delete": "9" * 30},
        {"name": "x", "back": "q=" + "y" * 3000},
    ],
)
def test_a_view_that_cannot_be_saved_or_found_says_so(viewer, data):
    answer = viewer.post("/ui/sessions/-/views/", data, follow=True)
    assert len(message_of(answer)) == 1
    assert not SavedSessionView.objects.exists()


def test_views_have_a_limit(monkeypatch):
    monkeypatch.setattr(session_lists, "MAX_VIEWS", 1)
    user = person("viewer")
    session_lists.save_session_view("one", "", user=user)
    with pytest.raises(BadRequest):
        session_lists.save_session_view("two", "", user=user)
    session_lists.save_session_view("one", "q=1", user=user)
    with pytest.raises(NotFound):
        session_lists.delete_saved_session_view(0, user=user)


# --- children and files ---------------------------------------------------------------------------------------------


def test_more_children_than_unfold_are_counted_and_linked(viewer, monkeypatch):
    monkeypatch.setattr("dashboard.sessions.views.listing.MOST_CHILDREN", 2)
    make_session("ses_a")
    for number in range(5):
        make_session(f"ses_child{number}", parent_session_id="ses_a")
    body = viewer.get("/ui/sessions/ses_a/-/children/").content.decode()
    assert body.count("data-session-row=") == 2
    assert "3 more children: list all" in " ".join(body.split())


def test_exports_hold_what_the_filters_list_in_its_order(approver):
    add_events(
        make_session("ses_a", agent_name="alpha", project_dir="=cmd()"),
        [said("user", "Fix the build"), said("assistant", "done", at=90)],
    )
    make_session("ses_b", agent_name="beta")
    make_session("ses_gone", agent_name="alpha")
    keep(approver, "tag", "ses_a", tags="x, y")
    keep(approver, "archive", "ses_gone")
    answer = approver.get("/ui/sessions/-/export.csv?sort=agent")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="sessions.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert [row["session_id"] for row in rows] == ["ses_a", "ses_b"]
    assert (rows[0]["title"], rows[0]["duration_seconds"], rows[0]["tags"]) == (
        "Fix the build",
        "90.0",
        '["x", "y"]',
    )
    assert rows[0]["project_dir"] == "'=cmd()"
    lines = approver.get("/ui/sessions/-/export.ndjson?agent=alpha").getvalue().decode().splitlines()
    (exported,) = map(json.loads, lines)
    assert (exported["session_id"], exported["events"], exported["started_at"][:10]) == (
        "ses_a",
        2,
        "2026-11-20",
    )
    assert (
        json.loads(approver.get("/ui/sessions/-/export.ndjson?archived=true").getvalue())["archived"] is True
    )
