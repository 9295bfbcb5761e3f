"""A session's news are drawn once for all its readers: like the page draws them, with what filters go by."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.template.loader import render_to_string

from coordinator.errors import BadRequest
from coordinator.feed.reader import FeedChange
from coordinator.live import fragments
from coordinator.live import pages as live
from coordinator.live.channels import EventFrame, FrameBlob, LiveChannel, StreamSubscriber
from coordinator.live.hub import WantedTopics
from coordinator.models import Event, PermissionContext, PermissionRequest, Session
from coordinator.sessions.timeline import SessionTimeline, load_window_rows
from dashboard.timeline import updates as news_module
from dashboard.timeline.query import TimelineQuery
from dashboard.timeline.rows import build_timeline_row_displays
from dashboard.timeline.updates import draw_timeline_updates, session_summary_drawing_or_none
from tests.timelines import BEGAN, add_events, began, called, ended, make_session, said

pytestmark = pytest.mark.django_db
NAMES = frozenset({"timeline:ses_000000000001"})


@pytest.fixture
def session() -> Session:
    return make_session(status="running")


def told_of(rows: Sequence[Event], first: int = 1) -> list[FeedChange]:
    return [
        FeedChange(first + n, 0, "events", str(row.pk), row.session_id, "insert")
        for n, row in enumerate(rows)
    ]


def on_the_page(session: Session, **wishes: Any) -> list[str]:
    """Return the rows as the page draws them for a reader with these filters."""
    timeline = SessionTimeline(session.pk, TimelineQuery(**wishes).build_event_filters_of_query(None))
    rows = build_timeline_row_displays(
        load_window_rows(timeline, timeline.read_last_window(100), session), session
    )
    return [
        render_to_string("sessions/_timeline_row.html", {"shown": row, "session": session}) for row in rows
    ]


def through(
    rows: list[dict[str, Any]], *, categories: tuple[str, ...] = (), tool: str = "", errors: bool = False
) -> list[str]:
    """Return what static/js/timeline.js shows of drawn rows to a reader with these filters."""
    return [
        row["html"]
        for row in rows
        if row["among_errors" if errors else "among_all"]
        and (row["category"] or not (categories or tool or errors))
        and (not categories or row["category"] in categories)
        and (not tool or (row["category"], row["tool"]) == ("calls", tool))
    ]


EVENTS = [
    {"event_type": "session_start"},
    said("user", "**Do** it"),
    *called("Bash", {"command": "ls"}, "a b c", use="one"),
    *called("Read", {"file_path": "/x"}, error="no such file", use="two"),
    {"event_type": "unheard_of", "reason": "why not"},
    said("assistant", "It failed", error="too long"),
]
WISHES: list[dict[str, Any]] = [
    {},
    {"categories": ("messages",)},
    {"categories": ("calls", "other")},
    {"categories": ("lifecycle",)},
    {"tool": "Bash"},
    {"errors": True},
    {"errors": True, "categories": ("calls",)},
    {"errors": True, "tool": "Read"},
    {"tool": "Read", "categories": ("messages",)},
]


@pytest.mark.parametrize("wishes", WISHES)
def test_each_reader_is_shown_what_a_page_with_their_filters_shows(
    session: Session, wishes: dict[str, Any]
) -> None:
    came = draw_timeline_updates(session.pk, told_of(add_events(session, EVENTS)))
    assert came is not None
    assert sorted(through(came["rows"], **wishes)) == sorted(on_the_page(session, **wishes))


def test_a_result_completes_its_call_wherever_that_stands(session: Session) -> None:
    add_events(session, [began("Bash", {"command": "ls"}, tool_use_id="a")])
    late = add_events(session, [ended("Bash", {"command": "ls"}, "done", tool_use_id="a", at=5)])
    came = draw_timeline_updates(session.pk, told_of(late))
    assert came is not None
    assert [(row["completes"], row["html"]) for row in came["rows"]] == [(True, on_the_page(session)[0])]


def test_rows_that_a_rewind_leaves_behind_are_drawn_again_and_say_so(session: Session) -> None:
    add_events(
        session,
        [
            said("user", "Do it"),
            said("user", "Wrong way"),
            *called("Bash", {"command": "ls"}, "a b c", use="one"),
        ],
    )
    times = [(BEGAN + timedelta(seconds=seconds)).isoformat() for seconds in (1, 3)]
    span = {"left_from": times[0], "left_until": times[1], "messages": 1}
    came = draw_timeline_updates(
        session.pk, told_of(add_events(session, [{"event_type": "rewind", "tool_input": span, "at": 30}]))
    )
    assert came is not None
    drawn = [(row["completes"], ">rewound<" in row["html"]) for row in came["rows"]]
    assert drawn == [(False, False), (True, True), (True, True)]
    assert sorted(row["html"] for row in came["rows"]) == sorted(on_the_page(session)[1:])


def test_what_concerns_another_session_is_not_drawn(session: Session) -> None:
    other = make_session("ses_other")
    rows = add_events(other, [said("user", "secret")])
    request = PermissionRequest.objects.create(
        request_id="r",
        created_at=BEGAN,
        plugin_id="p",
        permission_type="t",
        justification="j",
        status="pending",
    )
    PermissionContext.objects.create(request=request, session_id=other.pk)
    asked = FeedChange(2, 0, "permission_requests", str(request.pk), "p", "insert")
    assert draw_timeline_updates(session.pk, [*told_of(rows), asked]) is None
    assert draw_timeline_updates(other.pk, [asked]) is not None


def test_more_than_a_page_can_take_in_is_loaded_afresh(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news_module, "MOST_EVENTS", 2)
    rows = add_events(session, [said("user", "much") for _ in range(3)])
    assert draw_timeline_updates(session.pk, told_of(rows)) == {"too_many": True}


def test_a_summary_is_the_same_for_every_reader(session: Session) -> None:
    add_events(session, EVENTS)
    drawn = session_summary_drawing_or_none(session.pk)
    assert drawn is not None
    assert 'data-facet="errors" value="2"' in drawn["summary"]
    assert "csrf" not in drawn["summary"]
    assert "Waiting for the agent" in drawn["summary"]


def data_of(frame: EventFrame) -> list[tuple[str, Any]]:
    """Return the events in a frame, with their data."""
    pieces = [piece.split("\n") for piece in frame.data.decode().strip().split("\n\n")]
    fields = [dict(line.split(": ", 1) for line in lines) for lines in pieces]
    return [(one["event"], json.loads(one["data"])) for one in fields]


def test_rows_come_before_the_signal_that_tells_of_them(session: Session) -> None:
    rows = add_events(session, [said("user", "one"), said("user", "two")])
    (frame,) = live.render_page_frames(fragments.FragmentCache(), NAMES, told_of(rows, first=7))
    (_, drawing), (_, signal) = data_of(frame)
    assert [kind for kind, _ in data_of(frame)] == ["drawing", "signal"]
    assert (drawing["view"], drawing["key"], drawing["upto"], len(drawing["rows"])) == (
        "timeline",
        session.pk,
        8,
        2,
    )
    assert (frame.id, signal["id"], signal["count"]) == (8, 8, 2)


def test_what_cannot_be_drawn_is_read_by_the_page(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_key: str, _changes: Sequence[FeedChange]) -> None:
        raise ValueError

    view = fragments.LiveView(
        "timeline",
        news_module.VIEW.about,
        news_module.VIEW.other_topics,
        fail,
        session_summary_drawing_or_none,
    )
    monkeypatch.setitem(fragments.VIEWS, "timeline", view)
    (frame,) = live.render_page_frames(
        fragments.FragmentCache(), NAMES, told_of(add_events(session, [said("user", "one")]))
    )
    assert data_of(frame)[0][1]["failed"] is True


def test_a_view_follows_its_session_and_no_other() -> None:
    wants = live.page_wanted_topics(NAMES)
    assert wants(FeedChange(1, 0, "events", "5", "ses_000000000001", "insert"))
    assert wants(FeedChange(1, 0, "sessions", "ses_000000000001", None, "update"))
    assert not wants(FeedChange(1, 0, "events", "5", "ses_other", "insert"))
    with pytest.raises(BadRequest):
        live.parse_requested_topics(b"topics=timeline")


def test_many_changes_are_summed_up_once_a_moment_later() -> None:
    summed: list[list[int]] = []

    async def render(changes: Sequence[FeedChange]) -> list[EventFrame]:
        return [EventFrame(changes[-1].id, b"news;")]

    async def sum_up(changes: Sequence[FeedChange]) -> list[EventFrame]:
        summed.append([change.id for change in changes])
        return [EventFrame(changes[-1].id, b"summary;")]

    async def work() -> list[bytes]:
        channel = LiveChannel(WantedTopics(["events"]), render, sum_up=sum_up, sum_up_pause=0.05)
        members = [StreamSubscriber(0), StreamSubscriber(0)]
        channel.members.update(members)
        for number in range(1, 6):
            channel.queue_changes([FeedChange(number, 0, "events", str(number), "s", "insert")])
        blobs: list[FrameBlob] = []
        while not blobs or b"summary;" not in blobs[-1].chunks[0]:
            blob = await asyncio.wait_for(members[0].wait_for_next_blob(), 5)
            assert blob is not None
            blobs.append(blob)
        return [chunk for blob in blobs for chunk in blob.chunks]

    assert asyncio.run(work())[-1] == b"summary;"
    assert summed == [[5]]


def test_a_summary_is_drawn_once_for_all_pages_that_follow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def summary_of(key: str) -> dict[str, Any]:
        drawn.append(key)
        return {"row": f"{key} after {len(drawn)}"}

    view = fragments.LiveView("session_row", frozenset({"events"}), frozenset(), lambda *_: None, summary_of)
    monkeypatch.setitem(fragments.VIEWS, "session_row", view)
    kept = fragments.FragmentCache()
    pages = [frozenset({"session_row:a", "sessions"}), frozenset({"session_row:a", "session_row:b"})]
    told = [FeedChange(7, 0, "events", "1", "a", "insert"), FeedChange(8, 0, "sessions", "c", None, "update")]
    for names in pages:
        (frame,) = live.render_view_summary_frames(kept, names, told)
        assert data_of(frame)[0][1]["row"] == "a after 1"
    live.render_view_summary_frames(kept, pages[1], [FeedChange(9, 0, "events", "2", "a", "insert")])
    assert drawn == ["a", "a"]


def test_channels_sum_up_at_the_same_moments() -> None:
    moments: list[float] = []

    async def render(changes: Sequence[FeedChange]) -> list[EventFrame]:
        return []

    async def sum_up(changes: Sequence[FeedChange]) -> list[EventFrame]:
        moments.append(asyncio.get_running_loop().time())
        return []

    async def work() -> None:
        pause = 0.4
        loop = asyncio.get_running_loop()
        await asyncio.sleep(pause - loop.time() % pause)  # to the beginning of a turn
        for _ in range(2):
            channel = LiveChannel(WantedTopics(["events"]), render, sum_up=sum_up, sum_up_pause=pause)
            channel.members.add(StreamSubscriber(0))
            channel.queue_changes([FeedChange(1, 0, "events", "1", "s", "insert")])
            await asyncio.sleep(pause / 4)
        while len(moments) < 2:
            await asyncio.sleep(0.01)

    asyncio.run(work())
    assert moments[1] - moments[0] < 0.08
