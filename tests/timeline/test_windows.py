"""Windows of a timeline: every event once, in order, from any place, in both directions."""

from __future__ import annotations

import pytest
from django.db import connection

from coordinator.models import EventContext
from coordinator.sessions.timeline import EventPosition, SessionTimeline, TimelineFilters
from tests.timelines import add_events, called, make_session, said

pytestmark = pytest.mark.django_db


def ids_of(window):
    return [event.id for event in window.events]


def walk_forward(timeline, step):
    window, found = timeline.read_first_events(step), []
    while True:
        found += ids_of(window)
        if not window.newer:
            return found
        window = timeline.read_window_after_position(window.events[-1].event_position, step)


def walk_back(timeline, step):
    window, found = timeline.read_last_window(step), []
    while True:
        found = ids_of(window) + found
        if not window.older:
            return found
        window = timeline.read_window_before_position(window.events[0].event_position, step)


@pytest.fixture
def session():
    return make_session()


@pytest.mark.parametrize("adopted", [True, False])
def test_both_directions_see_every_event_once_in_order(session, adopted):
    rows = add_events(session, [said("user", str(n), at=n // 3) for n in range(23)], context=adopted)
    expected = [row.id for row in rows]
    assert walk_forward(SessionTimeline(session.pk), 5) == expected
    assert walk_back(SessionTimeline(session.pk), 5) == expected


def test_order_is_by_instant_whatever_zone_the_text_is_in(session):
    late, early, middle = add_events(
        session,
        [
            said("user", "late", at="2026-11-20T12:00:00+02:00"),
            said("user", "early", at="2026-11-20T09:30:00Z"),
            said("user", "middle", at="2026-11-20 09:45:00"),
        ],
    )
    assert walk_forward(SessionTimeline(session.pk), 10) == [early.id, middle.id, late.id]


def test_an_event_without_context_stands_where_its_time_says(session):
    first, _, last = rows = add_events(session, [said("user", str(n)) for n in range(3)])
    EventContext.objects.filter(event_id=rows[1].id).delete()
    assert walk_forward(SessionTimeline(session.pk), 2) == [first.id, rows[1].id, last.id]
    assert walk_back(SessionTimeline(session.pk), 2) == [first.id, rows[1].id, last.id]


def test_an_unreadable_time_without_context_comes_last(session):
    odd, plain = add_events(
        session, [said("user", "odd", at="yesterday"), said("user", "plain")], context=False
    )
    assert walk_forward(SessionTimeline(session.pk), 1) == [plain.id, odd.id]


def test_other_sessions_stay_out(session):
    other = make_session("ses_000000000002")
    add_events(other, [said("user", "not here")])
    assert SessionTimeline(session.pk).read_first_events(10).events == []


def test_a_window_around_an_event_holds_it_and_its_neighbours(session):
    rows = add_events(session, [said("user", str(n)) for n in range(30)])
    timeline = SessionTimeline(session.pk)
    place = timeline.find_event_position(rows[15].id)
    assert place is not None
    window = timeline.read_window_around_position(place, 9)
    assert ids_of(window) == [row.id for row in rows[12:21]]
    assert window.older
    assert window.newer


def test_the_last_event_has_nothing_newer(session):
    rows = add_events(session, [said("user", str(n)) for n in range(4)])
    window = SessionTimeline(session.pk).read_window_after_position(EventPosition(0, 0), 4)
    assert ids_of(window) == [row.id for row in rows]
    assert not window.newer
    assert not window.older


def test_place_of_knows_no_event_of_another_session(session):
    other = make_session("ses_000000000002")
    (row,) = add_events(other, [said("user", "there")])
    assert SessionTimeline(session.pk).find_event_position(row.id) is None


@pytest.mark.parametrize("adopted", [True, False])
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (TimelineFilters(categories=("messages",)), {"message"}),
        (TimelineFilters(categories=("calls",)), {"pre_tool", "post_tool"}),
        (TimelineFilters(categories=("lifecycle",)), {"session_start"}),
        (TimelineFilters(categories=("other",)), {"compaction"}),
        (TimelineFilters(categories=("messages", "other")), {"message", "compaction"}),
        (TimelineFilters(errors=True), {"post_tool"}),
        (TimelineFilters(tool="Bash"), {"pre_tool", "post_tool"}),
    ],
)
def test_filters_let_through_what_they_name(session, filters, expected, adopted):
    events = [{"event_type": "session_start"}, said("user", "go"), *called("Read", {"path": "/a"})]
    events += [*called("Bash", {"command": "x"}, error="boom"), {"event_type": "compaction"}]
    add_events(session, events, context=adopted)
    found = SessionTimeline(session.pk, filters).read_first_events(20).events
    assert {event.event_type for event in found} == expected
    if filters.tool:
        assert {event.tool_name for event in found} == {"Bash"}


@pytest.mark.parametrize(("tool", "expected"), [("tool", [None, "", "tool"]), ("Bash", ["Bash"])])
def test_calls_that_name_no_tool_stand_under_the_word_that_counts_them(session, tool, expected):
    events = [{"event_type": "pre_tool", "tool_name": name} for name in (None, "", "tool", "Bash")]
    add_events(session, [*events, said("user", "go")])
    found = SessionTimeline(session.pk, TimelineFilters(tool=tool)).read_first_events(20).events
    assert [event.tool_name for event in found] == expected


def test_next_place_finds_the_errors_one_after_the_other(session):
    events = [
        event for n in range(6) for event in called("Bash", {"n": n}, error="no" if n in (2, 4) else None)
    ]
    add_events(session, events)
    errors = SessionTimeline(session.pk, TimelineFilters(errors=True))
    first = errors.find_next_position(EventPosition(0, 0))
    assert first is not None
    second = errors.find_next_position(first)
    assert second is not None
    assert errors.find_next_position(second) is None
    assert errors.find_next_position(second, backwards=True) == first


def test_a_long_value_is_read_whole_and_a_huge_one_from_its_beginning(session):
    long, huge = "x" * 50_000, "é" * 3_000_000
    add_events(session, [*called("Read", {"path": "/a"}, long), *called("Read", {"path": "/b"}, huge)])
    outputs = [
        event.tool_output
        for event in SessionTimeline(session.pk).read_first_events(10).events
        if event.tool_output
    ]
    assert (outputs[0].value, outputs[0].whole) == (long, True)
    assert not outputs[1].whole
    assert huge.startswith(outputs[1].value)
    assert outputs[1].size > 6_000_000


def test_broken_json_is_shown_as_its_text(session):
    (row,) = add_events(session, [said("user", "x")])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE events SET content = %s WHERE id = %s", ["{not json", row.pk])
    (event,) = SessionTimeline(session.pk).read_first_events(5).events
    assert event.content is not None
    assert event.content.value == "{not json"


def test_a_page_of_a_timeline_is_a_fixed_number_of_queries(session, django_assert_num_queries):
    add_events(session, [said("user", str(n)) for n in range(300)])
    timeline = SessionTimeline(session.pk)
    # Two counts and one window.
    with django_assert_num_queries(3):
        timeline.read_first_events(100)
