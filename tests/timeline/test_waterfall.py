"""The waterfall: its scale and axis, what is on the critical path, what the time went on, and how its page zooms."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from django.http import QueryDict

from coordinator.lib import instants
from coordinator.models import PermissionContext, PermissionRequest, Session
from coordinator.sessions.timeline.spans import SessionSpan, load_session_spans_or_none
from dashboard.timeline.time_scale import FoldedTimeScale
from dashboard.timeline.time_use import critical_path_span_keys, divide_time_by_activity
from dashboard.timeline.waterfall import MOST_BARS, WaterfallQuery, load_waterfall_or_none
from tests.people import signed_in
from tests.timelines import BEGAN, add_events, began, called, make_session, said

SECOND = 1_000_000
START = instants.instant_to_microseconds(BEGAN)
NOW = BEGAN + timedelta(seconds=100)


def at(seconds: float) -> int:
    return START + int(seconds * SECOND)


def span(
    kind: str, first: float, last: float, *, lane: str = "", name: str = "Bash", key: str = ""
) -> SessionSpan:
    return SessionSpan(kind, lane, name, at(first), at(last), key or f"{kind} {first}")


def work(use: str, first: float, last: float, **fields: object) -> list[dict[str, object]]:
    """Return both halves of a call from one second to another."""
    start, end = called("Bash", {"command": use}, "done", use=use, took=last - first)
    return [start | {"at": first} | fields, end | {"at": last} | fields]


def asked(session: Session, first: float, last: float | None, key: str = "req_1") -> None:
    row = PermissionRequest.objects.create(
        request_id=key,
        created_at=BEGAN + timedelta(seconds=first),
        plugin_id="p",
        permission_type="ProcessExecution",
        justification="x",
        status="pending" if last is None else "approved",
        approved_at=None if last is None else BEGAN + timedelta(seconds=last),
    )
    PermissionContext.objects.create(request=row, session_id=session.pk, tool_name="Bash")


def test_a_scale_without_idle_time_is_straight():
    scale = FoldedTimeScale([(0, 4 * SECOND), (4 * SECOND, 10 * SECOND)])
    assert [scale.microseconds_to_percent(second * SECOND) for second in (0, 5, 10)] == [0, 50, 100]
    assert [scale.percent_to_microseconds(percent) for percent in (0, 50, 100)] == [
        0,
        5 * SECOND,
        10 * SECOND,
    ]
    assert scale.folded == []


def test_idle_time_is_folded_and_order_kept():
    scale = FoldedTimeScale([(0, 10 * SECOND), (3600 * SECOND, 3610 * SECOND)])
    places = [scale.microseconds_to_percent(second * SECOND) for second in (0, 5, 10, 1800, 3600, 3605, 3610)]
    assert places == sorted(places)
    assert places[3] - places[2] < 10
    assert len(scale.folded) == 1


def test_one_instant_is_a_scale_too():
    assert FoldedTimeScale([(5, 5)]).microseconds_to_percent(5) == 0


def test_the_axis_has_round_times_and_says_what_it_leaves_out():
    scale = FoldedTimeScale([(at(0), at(60)), (at(7260), at(7320))])
    marks = scale.list_axis_marks(START)
    assert [mark.label for mark in marks if mark.is_fold] == ["2h 00m"]
    times = [mark.label for mark in marks if not mark.is_fold]
    assert times[0] == "0:00"
    assert {"0:10", "2:01:10"} & set(times)
    assert all(later.x > earlier.x for earlier, later in pairwise(marks))


def test_a_short_stretch_has_parts_of_seconds_on_its_axis():
    labels = [mark.label for mark in FoldedTimeScale([(at(61), at(61.4))]).list_axis_marks(START)]
    assert labels[:2] == ["1:01.000", "1:01.050"]


def test_the_critical_path_is_read_from_the_end():
    spans = [
        span("call", 0, 10, key="first"),
        span("call", 2, 4, key="beside"),
        span("call", 11, 20, lane="Explore", key="long"),
        span("call", 11, 14, key="short"),
        span("call", 21, 22, key="last"),
    ]
    assert critical_path_span_keys(spans, at(25)) == {("call", key) for key in ("first", "long", "last")}


def test_what_an_agent_did_is_on_the_path_in_place_of_the_call_that_started_it():
    spans = [
        span("call", 0, 30, name="Task", key="starter"),
        span("call", 1, 12, lane="Explore", key="inside"),
        span("call", 13, 29, lane="Explore", key="inside too"),
    ]
    assert critical_path_span_keys(spans, at(30)) == {("call", "inside"), ("call", "inside too")}
    assert critical_path_span_keys(spans[:1], at(30)) == {("call", "starter")}


def test_what_the_time_went_on_adds_up():
    spans = [
        span("prompt", 0, 0),
        span("call", 2, 12),
        span("wait", 4, 9),
        span("said", 20, 20),
        span("prompt", 80, 80),
        span("call", 82, 90),
    ]
    parts = divide_time_by_activity(spans, at(0), at(100))
    lengths = {part.key: part.length_us // SECOND for part in parts}
    assert lengths == {"people": 5, "calls": 13, "agent": 22, "prompts": 60}
    assert sum(part.percent for part in parts) == pytest.approx(100)


@pytest.mark.django_db
def test_lanes_hold_people_the_agent_and_each_subagent():
    session = make_session()
    events = [said("user", "go", at=0), *work("a", 1, 5), *work("b", 2, 4, subagent="Explore 1")]
    add_events(session, [*events, *work("c", 3, 9, subagent="Explore 1"), said("assistant", "done", at=10)])
    asked(session, 1, 3)
    picture = load_waterfall_or_none(session, WaterfallQuery(), NOW)
    assert picture is not None
    assert [(lane.name, lane.count, lane.length_label) for lane in picture.lanes] == [
        ("People", 1, "2.0 s"),
        ("Agent", 1, "4.0 s"),
        ("Explore 1", 2, "8.0 s"),
    ]
    (bar,) = picture.lanes[1].bars
    assert (bar.name, bar.title, bar.length_label, bar.offset_label) == ("Bash", "a", "4.0 s", "0:01")
    assert bar.url.endswith(f"?event={bar.span.key}#event-{bar.span.key}")
    bars = [bar for lane in picture.lanes for bar in lane.bars]
    assert all(bar.x >= 0 and bar.x + bar.width <= 100.01 for bar in bars)


@pytest.mark.django_db
def test_what_still_runs_and_waits_reaches_to_now():
    session = make_session(status="running")
    add_events(session, [said("user", "go", at=90), began("Bash", {"command": "x"}, at=95)])
    asked(session, 96, None)
    loaded = load_session_spans_or_none(session, NOW)
    assert loaded is not None
    ends = {one.kind: (one.to_us, one.state) for one in loaded.spans if one.kind != "prompt"}
    assert ends == {"call": (at(100), "running"), "wait": (at(100), "waiting")}


@pytest.mark.django_db
def test_of_many_calls_the_longest_have_rows_and_all_are_in_their_lane():
    session = make_session()
    calls = [
        work(f"call {number}", number, number + (0.9 if number == 150 else 0.1)) for number in range(200)
    ]
    add_events(session, [half for call in calls for half in call])
    picture = load_waterfall_or_none(session, WaterfallQuery(), NOW)
    assert picture is not None
    (lane,) = picture.lanes
    assert (lane.count, len(lane.bars)) == (200, MOST_BARS)
    assert "call 150" in {bar.title for bar in lane.bars}
    zoomed = load_waterfall_or_none(session, WaterfallQuery(at(10), at(20)), NOW)
    assert zoomed is not None
    assert [bar.title for bar in zoomed.lanes[0].bars] == [f"call {number}" for number in range(10, 21)]


@pytest.mark.django_db
def test_nothing_is_drawn_of_nothing():
    session = make_session()
    assert load_waterfall_or_none(session, WaterfallQuery(), NOW) is None
    page = signed_in("viewer").get(f"/ui/sessions/{session.pk}/-/waterfall/")
    assert page.status_code == 200
    assert "Nothing to draw yet" in page.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "query",
    [
        "?from=x&to=-1",
        "?from=99999999999999999999",
        "?from=5&to=1",
        f"?from={START}&to={START}",
        "?left=x&right=1",
    ],
)
def test_no_address_breaks_the_page(query: str):
    session = make_session()
    add_events(session, [*work("a", 1, 5)])
    assert signed_in("viewer").get(f"/ui/sessions/{session.pk}/-/waterfall/{query}").status_code == 200


@pytest.mark.django_db
def test_a_drag_over_the_axis_leads_to_its_stretch():
    session = make_session()
    add_events(session, [*work("a", 0, 50), *work("b", 50, 100)])
    url = f"/ui/sessions/{session.pk}/-/waterfall/"
    answer = signed_in("viewer").get(f"{url}?left=75&right=25")
    assert answer.status_code == 302
    query = QueryDict(answer["Location"].partition("?")[2])
    stretch = [round((int(query[name]) - START) / SECOND) for name in ("from", "to")]
    assert stretch == [25, 75]


@pytest.mark.django_db
def test_zooming_is_following_links_and_the_path_can_stand_alone():
    session = make_session()
    add_events(session, [*work("a", 0, 50), *work("beside", 10, 20), *work("b", 50, 100)])
    client = signed_in("viewer")
    url = f"/ui/sessions/{session.pk}/-/waterfall/"
    page = client.get(url).content.decode()
    assert "Zoom in" in page
    assert "Whole session" not in page
    zoomed = client.get(f"{url}?from={at(30)}&to={at(60)}").content.decode()
    assert all(words in zoomed for words in ("Zoom out", "Earlier", "Later", "Whole session"))
    assert "beside" not in zoomed
    alone = client.get(f"{url}?path=1").content.decode()
    assert "Show all calls" in alone
    assert 'title="Bash beside"' not in alone
