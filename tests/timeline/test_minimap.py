"""The strip of a whole session: every event is in it, idle days are not, what failed and who was asked is marked."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from coordinator.models import Event, EventContext, PermissionContext, PermissionRequest, Session
from coordinator.sessions.timeline import (
    SessionTimeline,
    TimelineFilters,
    counts,
    density,
    get_or_load_event_counts,
    load_cached_density_slots,
    load_session_event_counts,
)
from dashboard.timeline.minimap import build_minimap
from tests.people import signed_in

pytestmark = pytest.mark.django_db
BEGAN = datetime(2026, 11, 20, 9, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    density._known.clear()
    counts._recent_counts.clear()


def told(seconds: list[float], errors: set[int] = frozenset()) -> Session:  # type: ignore[assignment]
    """Return a session with a message at each of these seconds; those with a number in `errors` failed."""
    session = Session.objects.create(session_id="ses_strip", status="finished", created_at=BEGAN)
    rows = Event.objects.bulk_create(
        Event(
            session=session,
            event_type="message",
            timestamp="",
            error="it broke" if number in errors else None,
        )
        for number, _ in enumerate(seconds)
    )
    EventContext.objects.bulk_create(
        EventContext(event=row, session_id=session.pk, received_at=BEGAN, instant_us=us(second))
        for row, second in zip(rows, seconds, strict=True)
    )
    return session


def us(second: float) -> int:
    return int((BEGAN.timestamp() + second) * 1_000_000)


def slots_of(session: Session):
    found = load_session_event_counts(session.pk)
    return load_cached_density_slots(session.pk, total=found.total, errors=found.errors)


def asked(session: Session, second: float, status: str) -> None:
    request = PermissionRequest.objects.create(
        request_id=f"req_{second}", created_at=BEGAN + timedelta(seconds=second), plugin_id="p",
        permission_type="FileRead", justification="x", status=status,
    )  # fmt: skip
    PermissionContext.objects.create(request=request, session_id=session.pk)


@pytest.mark.parametrize(
    "seconds",
    [
        [0],
        [0, 0, 0],
        [0, 0.000001],
        list(range(300)),
        [*range(40), *range(90_000, 90_040), *range(400_000, 400_100)],
        [-7_000_000_000, 0, 1, 9_000_000_000],
        [number**3 for number in range(60)],
    ],
    ids=["one", "at-once", "next-to", "steady", "three-days", "odd-years", "slowing"],
)
def test_every_event_is_counted_once(seconds: list[float]) -> None:
    slots = slots_of(told(seconds))
    assert sum(slot.events for slot in slots) == len(seconds)
    assert len(slots) <= density.SLOTS + density.MOST_STRETCHES * density.LEAST_SLOTS
    assert all(one.to_us <= other.from_us for one, other in pairwise(slots))
    assert all(slot.from_us < slot.to_us for slot in slots)


def test_idle_days_are_left_out_and_said() -> None:
    slots = slots_of(told([*range(60), *(3 * 86_400 + second for second in range(60))]))
    assert [slot.idle_us // 3_600_000_000 for slot in slots if slot.idle_us] == [71]
    assert sum(slot.events > 0 for slot in slots) > density.BUSY


def test_errors_are_marked_with_the_first_of_their_slice() -> None:
    session = told([float(second) for second in range(960)], errors={400, 401, 402})
    [slot] = [slot for slot in slots_of(session) if slot.errors]
    assert slot.errors == 3
    first = SessionTimeline(session.pk, TimelineFilters(errors=True)).read_first_events(1).events[0]
    assert slot.first_error == first.id


def test_of_very_many_errors_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "MOST_ERRORS", 240)
    slots = slots_of(told([float(second) for second in range(960)], errors=set(range(480, 960))))
    assert not any(slot.errors for slot in slots[:45])
    assert 400 < sum(slot.errors for slot in slots) <= 480


def test_questions_are_marked_and_looked_up_anew() -> None:
    session = told([float(second) for second in range(960)])
    asked(session, 100, "approved")
    assert [slot.waits for slot in slots_of(session) if slot.question_count] == [False]
    asked(session, 500.5, "pending")
    assert [slot.waits for slot in slots_of(session) if slot.question_count] == [False, True]


def test_a_session_that_has_not_changed_is_not_counted_again(django_assert_num_queries) -> None:
    session = told([float(second) for second in range(200)])
    counts = load_session_event_counts(session.pk)
    load_cached_density_slots(session.pk, total=counts.total, errors=counts.errors)
    with django_assert_num_queries(1):  # the requests
        load_cached_density_slots(session.pk, total=counts.total, errors=counts.errors)


def test_the_frame_stands_where_the_window_is() -> None:
    session = told([float(second) for second in range(960)])
    window = SessionTimeline(session.pk).read_first_events(96)
    frame = (window.events[0].at_us, window.events[-1].at_us)
    minimap = build_minimap(slots_of(session), lambda slot: f"?after={slot.from_us}", "/page/", frame, us(0))
    assert minimap is not None
    assert (minimap.x, round(minimap.width)) == (0, 10)
    assert abs(sum(one.width for one in minimap.slices) - 100) < 1
    assert minimap.slices[0].label == "From 0:00, for 10.0 s: 10 events"


def test_a_slice_leads_to_its_time_and_an_error_to_its_call() -> None:
    session = told([float(second) for second in range(960)], errors={400})
    browser = signed_in("viewer")
    page = browser.get(f"/ui/sessions/{session.pk}/").content.decode()
    assert page.count("data-slice ") == 96
    slot = slots_of(session)[40]
    assert f'href="?after={slot.from_us}.0"' in page
    there = browser.get(f"/ui/sessions/{session.pk}/?after={slot.from_us}.0").context
    assert slot.from_us <= there["window"].events[0].at_us < slot.to_us
    assert there["window"].older
    assert f"?event={slot.first_error}#event-{slot.first_error}" in page


def test_a_session_of_one_page_has_its_strip() -> None:
    session = told([float(second) for second in range(25)])
    browser = signed_in("viewer")
    assert b'id="minimap"' in browser.get(f"/ui/sessions/{session.pk}/").content
    assert b'id="minimap"' in browser.get(f"/ui/sessions/{session.pk}/-/minimap/").content


def test_a_session_that_is_read_at_one_look_has_no_strip() -> None:
    session = told([float(second) for second in range(24)])
    browser = signed_in("viewer")
    assert b'id="minimap"' not in browser.get(f"/ui/sessions/{session.pk}/").content
    assert browser.get(f"/ui/sessions/{session.pk}/-/minimap/").content.strip() == b""


def test_many_readers_of_a_growing_session_count_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    session = told([0.0, 1.0])
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert get_or_load_event_counts(session.pk).total == 2
    Event.objects.create(session=session, event_type="message", timestamp="")
    assert get_or_load_event_counts(session.pk).total == 2
    clock[0] += counts.RECENT_SECONDS + 1
    assert get_or_load_event_counts(session.pk).total == 3
