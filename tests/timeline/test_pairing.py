"""A call and its result become one row, however far apart and in whatever order they came."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coordinator.models import Event
from coordinator.sessions.timeline import (
    CallRow,
    SessionTimeline,
    TimelineFilters,
    load_arrived_rows_of_events,
    load_window_rows,
)
from tests.timelines import BEGAN, add_events, began, called, ended, make_session, said

pytestmark = pytest.mark.django_db


@pytest.fixture
def session():
    return make_session(status="running")


def calls_of(session, *, limit=200, filters=None, window=None):
    timeline = SessionTimeline(session.pk, filters)
    rows = load_window_rows(timeline, window or timeline.read_first_events(limit), session)
    return [row for row in rows if isinstance(row, CallRow)]


def test_a_call_with_an_id_finds_its_result_among_others(session):
    add_events(
        session,
        [
            began("Bash", {"c": 1}, tool_use_id="a"),
            began("Bash", {"c": 2}, tool_use_id="b"),
            ended("Bash", {"c": 2}, "two", tool_use_id="b"),
            ended("Bash", {"c": 1}, "one", tool_use_id="a"),
        ],
    )
    assert [row.end.tool_output.value for row in calls_of(session)] == ["one", "two"]


def test_an_end_dated_before_its_beginning_is_believed_by_its_id(session):
    add_events(
        session, [ended("Bash", {}, "done", tool_use_id="a", at=1), began("Bash", {}, tool_use_id="a", at=2)]
    )
    (row,) = calls_of(session)
    assert row.call_state == "done"
    assert row.duration_ms == 0


def test_without_ids_equal_calls_pair_as_brackets_do(session):
    add_events(
        session,
        [
            began("Bash", {"c": 1}),
            began("Read", {"p": 1}),
            ended("Read", {"p": 1}, "r"),
            ended("Bash", {"c": 1}, "b"),
        ],
    )
    assert [
        (row.event_with_tool_name_and_input.tool_name, row.end.tool_output.value) for row in calls_of(session)
    ] == [
        ("Bash", "b"),
        ("Read", "r"),
    ]


def test_without_ids_an_interrupted_call_does_not_take_a_later_result(session):
    add_events(session, [began("Bash", {"c": 1}), *called("Bash", {"c": 1}, "later")])
    interrupted, done = calls_of(session)
    assert interrupted.end is None
    assert done.end.tool_output.value == "later"


def test_an_end_with_another_input_is_not_taken(session):
    add_events(session, [began("Bash", {"c": 1}), ended("Bash", {"c": 2}, "x")])
    assert [(row.start is None, row.end is None) for row in calls_of(session)] == [
        (False, True),
        (True, False),
    ]


@pytest.mark.parametrize("use", ["id", None])
def test_a_window_that_ends_within_a_call_shows_its_result(session, use):
    add_events(
        session,
        [
            *called("Bash", {"c": 1}, "here", use=use)[:1],
            *[said("assistant", str(n)) for n in range(20)],
            *called("Bash", {"c": 1}, "here", use=use)[1:],
        ],
    )
    timeline = SessionTimeline(session.pk)
    (row,) = calls_of(session, limit=5)
    assert row.end.tool_output.value == "here"
    assert calls_of(session, window=timeline.read_last_window(5)) == []  # it is read where the call was made


def test_errors_only_shows_the_whole_call(session):
    add_events(
        session,
        [*called("Bash", {"c": "rm"}, use="a", error="denied"), *called("Bash", {"c": "ls"}, "ok", use="b")],
    )
    (row,) = calls_of(session, filters=TimelineFilters(errors=True))
    assert row.call_state == "failed"
    assert row.start.tool_input.value == {"c": "rm"}


def test_a_call_without_result_runs_while_its_session_does(session):
    add_events(session, [began("Bash", {"c": 1})])
    assert calls_of(session)[0].call_state == "running"
    session.status = "finished"
    assert calls_of(session)[0].call_state == "no result"


@pytest.mark.parametrize(
    "after", [said("user", "go on"), {"event_type": "session_stop"}, {"event_type": "run_completed"}]
)
def test_a_call_is_over_when_its_turn_is(session, after):
    add_events(session, [began("Bash", {"c": 1}), after])
    assert calls_of(session)[0].call_state == "no result"


def test_a_call_goes_on_while_its_sub_agent_works(session):
    add_events(
        session,
        [
            began("Task", {"prompt": "x"}, tool_use_id="t"),
            *called("Read", {"p": 1}, use="r"),
            said("user", "to the sub-agent", subagent="helper"),
        ],
    )
    assert calls_of(session)[0].call_state == "running"


def test_a_failed_call_says_so_and_how_long_it_took(session):
    add_events(session, called("Bash", {"c": 1}, error="boom", took=1.5))
    (row,) = calls_of(session)
    assert (row.call_state, row.duration_ms) == ("failed", 1500)


def test_news_tell_new_rows_from_calls_that_are_complete_now(session):
    add_events(session, [began("Bash", {"c": 1}, tool_use_id="a")])
    late = add_events(
        session, [ended("Bash", {"c": 1}, "done", tool_use_id="a", at=5), said("assistant", "next", at=6)]
    )
    timeline = SessionTimeline(session.pk)
    arrived = load_arrived_rows_of_events(
        timeline, timeline.read_filtered_events_with_ids([row.id for row in late]), session
    )
    assert [row.row_type for row in arrived.new] == ["message"]
    assert [(row.row_type, row.call_state) for row in arrived.completed] == [("call", "done")]


def test_two_results_for_one_call_are_one_row(session):
    add_events(
        session,
        [
            *called("Bash", {"c": 1}, "first", use="a"),
            ended("Bash", {"c": 1}, "again", tool_use_id="a", at=9),
        ],
    )
    assert len(calls_of(session)) == 1


def test_children_stand_where_they_were_started(session):
    add_events(session, [said("user", "a", at=0), said("assistant", "b", at=10)])
    make_session("ses_child", parent_session_id=session.pk, created_at=BEGAN + timedelta(seconds=5))
    timeline = SessionTimeline(session.pk)
    assert [row.row_type for row in load_window_rows(timeline, timeline.read_first_events(10), session)] == [
        "message",
        "child",
        "message",
    ]


def test_a_child_and_the_call_that_started_it_are_one_row(session):
    tool = "mcp__agents__start_agent_session"
    started = called(tool, {"prompt": "review"}, {"session": "ses_child"}, use="a", took=8)
    other = called(tool, {"prompt": "docs"}, {"session": "ses_elsewhere"}, use="b", took=1)
    add_events(
        session,
        [started[0] | {"at": 1}, started[1] | {"at": 9}, other[0] | {"at": 10}, other[1] | {"at": 11}],
    )
    for name, second in (("ses_child", 2), ("ses_alone", 20)):
        make_session(name, parent_session_id=session.pk, created_at=BEGAN + timedelta(seconds=second))
    timeline = SessionTimeline(session.pk)
    rows = load_window_rows(timeline, timeline.read_first_events(10), session)
    assert [row.row_type for row in rows] == ["call", "call", "child"]
    assert [row.child.child.pk if row.child else None for row in rows[:2]] == ["ses_child", None]
    assert rows[2].child.pk == "ses_alone"
    arrived = load_arrived_rows_of_events(timeline, timeline.read_first_events(10).events, session)
    assert [row.child.child.pk if row.child else None for row in arrived.new] == ["ses_child", None]


def passed(tool, given, came, **fields):
    return ended(tool, given, came, source="gateway", **fields)


def test_of_a_call_through_the_gateway_the_agent_s_own_end_is_shown_and_the_gateway_s_beside_it(session):
    through = passed("mcp__a__b", {}, "through", tool_use_id="a")
    own = ended("mcp__signalbox__a__b", {}, "own", tool_use_id="a")
    for ends in ([through, own], [own, through]):
        Event.objects.all().delete()
        add_events(session, [began("mcp__signalbox__a__b", {}, tool_use_id="a"), *ends])
        (row,) = calls_of(session)
        assert (row.end.tool_output.value, row.passed.tool_output.value) == ("own", "through")


def test_a_call_whose_id_is_ours_keeps_its_own_end_beside_the_gateway_s(session):
    add_events(
        session,
        [
            began("mcp__signalbox__a__b", {"c": 1}, tool_use_id="made:1"),
            passed("mcp__signalbox__a__b", {"c": 1}, "through", tool_use_id="made:1"),
            *(said("assistant", "well") for _ in range(5)),
            ended("mcp__signalbox__a__b", {"c": 1}, "own"),
        ],
    )
    for limit in (200, 2):
        (row,) = calls_of(session, limit=limit)
        assert (row.end.tool_output.value, row.passed.tool_output.value) == ("own", "through")


def test_what_the_gateway_told_in_other_words_is_a_call_all_the_same(session):
    (event,) = add_events(session, [passed("mcp__a__b", {}, "x", tool_use_id="a")])
    event.context.extra = {"gateway": ["?"]}
    event.context.save()
    (row,) = calls_of(session)
    assert row.passed.gateway is None
