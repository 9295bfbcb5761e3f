"""What agents did to a file: the calls that touched it, in all sessions, and the sessions they are of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordinator.actions import search
from coordinator.actions.search import file_touches
from coordinator.actions.search.indexing import iterate_index_steps
from coordinator.actions.sessions import sessions
from coordinator.actions.upkeep import pruning
from coordinator.identity.actors import system_actor
from coordinator.models import Agent, EventContext, Session, SessionTitle
from coordinator.search import files
from coordinator.search.paths import MOST_PATHS, READ_UP_TO, extract_paths_from_stored_input
from coordinator.search.progress import IndexingProgress, load_indexing_progress
from tests.people import signed_in
from tests.schema.query_plans import without_statistics
from tests.search.indexing import index_new
from tests.timelines import BEGAN, add_events, began, called, ended, make_session, said

pytestmark = pytest.mark.django_db
APP = {"file_path": "/srv/app/src/app.py"}


@pytest.fixture
def session() -> Session:
    return make_session(project_dir="/srv/app")


def touched(text: str, **where: Any) -> list[int]:
    return [
        touch.event.pk
        for touch in files.load_calls_touching_files(
            files.find_touched_files_matching_path(text), **where
        ).touches
    ]


def kept() -> tuple[int, int]:
    """Return how many files and touches are kept."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT (SELECT count(*) FROM sbx_files), (SELECT count(*) FROM sbx_file_touches)")
        counts: tuple[int, int] = cursor.fetchone()
        return counts


@pytest.mark.parametrize(
    ("stored", "paths"),
    [
        ('{"file_path": "/a/b.py"}', ["/a/b.py"]),
        ('{"notebook_path": "/a/b.ipynb"}', ["/a/b.ipynb"]),
        ('{"path": "src/app.py"}', ["/srv/app/src/app.py"]),
        ('{"path": "../lib/x.py"}', ["/srv/lib/x.py"]),
        ('{"paths": ["/a", "/b", 3]}', ["/a", "/b"]),
        (r'{"path": "C:\\work\\x.py"}', ["C:\\work\\x.py"]),
        ('{"input": "*** Begin Patch\\n*** Update File: x.py\\n@@\\n*** Add File: /y\\n"}', ["/srv/app/x.py", "/y"]),
        ('{"command": ["apply_patch", "*** Delete File: /z\\n"]}', ["/z"]),
        ('{"path": "https://example.org/x"}', []),
        ('{"path": "."}', []),
        ('{"path": 7, "file_path": null}', []),
        ('{"path": "two\\nlines"}', []),
        ('{"command": "cat /etc/passwd"}', []),
        ('{"pruned": true}', []),
        ("[1]", []),
        ("not JSON", []),
        (None, []),
        ('{"file_path": "/a \\u00e9.py", "content": "' + "x" * READ_UP_TO, ["/a é.py"]),
    ],
)  # fmt: skip
def test_the_paths_that_an_input_names(stored: str | None, paths: list[str]) -> None:
    assert extract_paths_from_stored_input(stored, "/srv/app") == paths


def test_no_input_names_too_many_paths() -> None:
    named = ", ".join(f'"/p/{n}"' for n in range(200))
    assert len(extract_paths_from_stored_input(f'{{"paths": [{named}]}}', None)) == MOST_PATHS


def test_calls_of_all_sessions_are_listed_newest_first(session: Session) -> None:
    other = make_session("ses_other", agent_name="builder", project_dir="/srv/app")
    read, _ = add_events(session, called("Read", APP, "text"))
    add_events(session, called("Read", {"file_path": "/srv/app/src/other.py"}, "text"))
    edit, _ = add_events(other, called("mcp__files__write", {"path": "src/app.py", "content": "x"}, use="a"))
    index_new()
    assert touched("/srv/app/src/app.py") == [edit.pk, read.pk]
    assert touched("src/app.py") == touched("APP.PY") == touched("c/app") == [edit.pk, read.pk]
    assert touched("/srv/app/src/app.py", tool="Read") == [read.pk]
    assert touched("/srv/app/src/app.py", agent="builder") == [edit.pk]
    assert touched("app.pyx") == touched("_app.py") == touched("") == []


def test_a_path_is_what_is_meant_before_others_that_have_it_in_them(session: Session) -> None:
    one, two, three = add_events(
        session, [began("Read", {"file_path": path}) for path in ("/a.py", "/x/a.py", "/x/aaa.py.old")]
    )
    index_new()
    assert touched("/a.py") == [one.pk]
    assert touched("x/a.py") == [two.pk]
    assert touched("a.py") == [two.pk, one.pk]
    assert touched("aa.py") == [three.pk]


def test_a_call_is_listed_once_and_one_without_a_beginning_by_its_end(session: Session) -> None:
    events = [
        *called("Read", APP, "x", use="a"),
        *called("Edit", APP, "x"),
        ended("Write", APP, "x", tool_use_id="c"),
        ended("NotebookEdit", APP, "x"),
    ]
    rows = add_events(session, events)
    index_new()
    assert touched("app.py") == [rows[5].pk, rows[4].pk, rows[2].pk, rows[0].pk]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite looks each beginning up by itself")
def test_a_batch_of_many_calls_looks_their_beginnings_up(session: Session) -> None:
    """A database that was just filled has no statistics yet, and must not read all events for each batch."""
    calls = [event for number in range(150) for event in called("Read", APP, "x", use=f"use-{number}")]
    rows = add_events(session, calls)
    plans: list[str] = []

    def explain_calls(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(file_touches._CALLS.partition("{ids}")[0]):
            execute(f"EXPLAIN {sql}", params, many, context)
            plans.append("\n".join(line for (line,) in context["cursor"].fetchall()))
        return execute(sql, params, many, context)

    with without_statistics(), connection.execute_wrapper(explain_calls):
        file_touches.record_file_touches([row.pk for row in rows])
    (plan,) = plans
    assert [word for word in ("hashed SubPlan", "Hash", "Seq Scan") if word in plan] == []
    assert "sbx_event_context_tool_use" in plan


def test_pages_follow_each_other(session: Session) -> None:
    rows = add_events(session, [began("Read", APP) for _ in range(5)])
    index_new()
    meant = files.find_touched_files_matching_path("app.py")
    first = files.load_calls_touching_files(meant, limit=3)
    second = files.load_calls_touching_files(meant, limit=3, before=first.before)
    listed = [touch.event.pk for touch in (*first.touches, *second.touches)]
    assert (listed, second.before) == ([row.pk for row in reversed(rows)], None)


def test_what_a_deleted_session_touched_is_forgotten(session: Session) -> None:
    add_events(session, called("Read", APP))
    index_new()
    sessions.remove_session(session.pk, actor=system_actor("tests"), now=BEGAN)
    assert touched("app.py") == []
    search.unindex_deleted_events()
    assert kept() == (0, 0)


@pytest.mark.usefixtures("unpruned")
def test_what_pruned_inputs_touched_is_forgotten(session: Session) -> None:
    add_events(session, called("Read", APP))
    index_new()
    EventContext.objects.update(received_at=BEGAN)
    bodies = next(
        rule for rule in pruning.build_retention_rules(event_bodies=1) if rule.name == "event-bodies"
    )
    pruning.apply_retention_rule(bodies, BEGAN + timedelta(days=3), write=True)
    index_new()
    search.unindex_deleted_events()
    assert kept() == (0, 0)


def test_a_rebuild_notes_the_same(session: Session) -> None:
    (row, _) = add_events(session, called("Read", APP))
    index_new()
    before = kept()
    search.rebuild_search_index()
    assert (kept(), touched("app.py")) == (before, [row.pk])


def test_what_came_before_is_noted_step_by_step(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.actions.search.file_touches.STEP", 2)
    rows = add_events(session, [began("Read", APP) for _ in range(4)])
    index_new()
    with connection.cursor() as cursor:  # as the version before left it
        for table in ("sbx_file_touches", "sbx_files", "sbx_session_tools"):
            cursor.execute(f"DELETE FROM {table}")
        cursor.execute("UPDATE sbx_search_progress SET filed = %s", [rows[0].pk - 1])
    next(iterate_index_steps())
    assert (touched("app.py"), load_indexing_progress().files is not None) == ([rows[1].pk, rows[0].pk], True)
    assert "Calls in older events are being indexed" in signed_in("viewer").get("/ui/files/").content.decode()
    index_new()
    assert (touched("app.py"), load_indexing_progress()) == (
        [row.pk for row in reversed(rows)],
        IndexingProgress(),
    )


def test_the_page_links_to_calls_and_sessions(session: Session) -> None:
    (row, _) = add_events(
        session, called("Edit", APP | {"old_string": "<b>", "new_string": "b\nc"}, use="a", error="denied")
    )
    index_new()
    body = signed_in("viewer").get("/ui/files/", {"path": "app.py"}).content.decode()
    assert f"/ui/sessions/{session.pk}/?event={row.pk}#event-{row.pk}" in body
    assert "/srv/app/src/app.py" in body
    assert '<span class="plus">+2</span>' in body
    assert "/ui/sessions/?file=%2Fsrv%2Fapp%2Fsrc%2Fapp.py" in body


def test_a_call_says_whose_it_was_and_in_which_session_by_their_names(session: Session) -> None:
    Agent.objects.create(id="agent.tester", name="The tester", default_engine_id="mind.x")
    Session.objects.filter(pk=session.pk).update(agent_name="tester")
    SessionTitle.objects.create(
        session=session, title="Round the totals", source="person", set_at=session.created_at
    )
    add_events(session, called("Edit", APP, use="a"))
    index_new()
    body = " ".join(signed_in("viewer").get("/ui/files/", {"path": "app.py"}).content.decode().split())
    assert '<a class="plain tall" href="/ui/agents/of/agent.tester/" title="tester">The tester</a>' in body
    assert "Round the totals" in body


def test_a_failed_call_says_so(session: Session) -> None:
    add_events(session, called("Edit", APP, use="a", error="denied"))
    add_events(session, called("Read", APP, use="b"))
    index_new()
    assert [
        touch.failed
        for touch in files.load_calls_touching_files(files.find_touched_files_matching_path("app.py")).touches
    ] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    "query",
    ["", "?path=%25_!", "?path=x&before=y", "?path=nothing", "?tool=x", "?path=" + "x" * 2000],
)
def test_an_odd_query_is_no_error(query: str) -> None:
    assert signed_in("viewer").get(f"/ui/files/{query}").status_code == 200


def test_a_page_asks_no_query_per_call(session: Session) -> None:
    client = signed_in("viewer")

    def asked() -> int:
        index_new()
        with CaptureQueriesContext(connection) as seen:
            assert client.get("/ui/files/", {"path": "app.py"}).status_code == 200
        return len(seen)

    add_events(session, called("Read", APP))
    one = asked()
    for number in range(9):
        add_events(make_session(f"ses_{number}"), called("Read", APP))
    assert asked() == one


def test_searching_for_a_file_leads_to_its_page() -> None:
    answer = signed_in("viewer").get("/ui/search/", {"q": " file: src/a b.py"})
    assert (answer.status_code, answer["Location"]) == (302, "/ui/files/?path=src%2Fa+b.py")


def test_a_timeline_leads_to_what_was_done_to_its_files(session: Session) -> None:
    add_events(session, [said("user", "x"), *called("Read", {"file_path": "/srv/a b.py"}, "x")])
    body = signed_in("viewer").get(f"/ui/sessions/{session.pk}/").content.decode()
    assert 'href="/ui/files/?path=%2Fsrv%2Fa%20b.py"' in body


def test_sessions_are_found_by_tool_and_by_file(session: Session) -> None:
    other = make_session("ses_other", parent_session_id=session.pk)
    add_events(session, called("Read", APP))
    add_events(other, called("Edit", {"file_path": "/x/b.py"}))
    make_session("ses_idle")
    index_new()
    client = signed_in("viewer")

    def listed(**query: str) -> list[str]:
        return [row.session.pk for row in client.get("/ui/sessions/", query).context["rows"]]

    assert listed(tool="Read") == [session.pk]
    assert listed(tool="Edit") == listed(file="b.py") == ["ses_other"]
    assert listed(file="src/app.py", tool="Read") == [session.pk]
    assert listed(file="src/app.py", tool="Edit") == listed(file="nothing") == []
    assert client.get("/ui/sessions/").context["tools"] == ["Edit", "Read"]
