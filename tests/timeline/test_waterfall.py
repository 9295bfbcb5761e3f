"""The waterfall's scale: order kept, idle time folded, everything within the picture."""

from __future__ import annotations

import pytest

from coordinator.lib import instants
from coordinator.sessions.timeline import SessionTimeline, build_window_rows
from dashboard.timeline.rows import prepare_timeline_rows
from dashboard.timeline.waterfall import FoldedTimeScale, build_waterfall
from tests.timelines import BEGAN, add_events, began, called, make_session, said

SECOND = 1_000_000
NOW = instants.to_microseconds(BEGAN) + 100 * SECOND


def drawn(session):
    timeline = SessionTimeline(session.pk)
    return build_waterfall(
        prepare_timeline_rows(build_window_rows(timeline, timeline.read_first_events(100), session), session),
        NOW,
    )


def test_a_scale_without_idle_time_is_straight():
    scale = FoldedTimeScale([(0, 4 * SECOND), (4 * SECOND, 10 * SECOND)])
    assert [scale.instant_to_percent(at * SECOND) for at in (0, 5, 10)] == [0, 50, 100]
    assert scale.folded == []


def test_idle_time_is_folded_and_order_kept():
    scale = FoldedTimeScale([(0, 10 * SECOND), (3600 * SECOND, 3610 * SECOND)])
    places = [scale.instant_to_percent(at * SECOND) for at in (0, 5, 10, 1800, 3600, 3605, 3610)]
    assert places == sorted(places)
    assert places[3] - places[2] < 10
    assert len(scale.folded) == 1


def test_one_instant_is_a_scale_too():
    assert FoldedTimeScale([(5, 5)]).instant_to_percent(5) == 0


@pytest.mark.django_db
def test_bars_stand_where_their_rows_happened():
    session = make_session()
    start, end = called("Bash", {"command": "x"}, "y", use="a", took=4)
    add_events(
        session,
        [said("user", "go", at=0), start | {"at": 1}, end | {"at": 5}, said("assistant", "done", at=8)],
    )
    picture = drawn(session)
    assert picture is not None
    assert [bar.css_class for bar in picture.bars] == ["message user", "call done", "message assistant"]
    call = picture.bars[1]
    assert call.label == "Bash x, 4.0 s"
    assert 0 < call.x < call.x + call.width < 100
    assert all(bar.x >= 0 and bar.x + bar.width <= 100.01 for bar in picture.bars)


@pytest.mark.django_db
def test_what_still_runs_reaches_to_now():
    session = make_session(status="running")
    add_events(session, [said("user", "go", at=98), began("Bash", {"command": "x"}, at=99)])
    picture = drawn(session)
    assert picture is not None
    bar = picture.bars[1]
    assert bar.css_class == "call running"
    assert bar.x + bar.width == pytest.approx(100)


@pytest.mark.django_db
def test_nothing_is_drawn_of_nothing():
    assert drawn(make_session()) is None
