from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from coordinator.actions.sessions import events
from coordinator.actions.sessions.events import (
    add_all_missing_event_contexts,
    add_contexts_missing_in_range,
    add_new_missing_event_contexts,
    record_events,
)
from coordinator.errors import NotFound, UnprocessableRequest
from coordinator.lib import instants
from coordinator.models import Event, EventContext, Session
from coordinator.sessions.events import EVENT_COLUMNS, NewEvent, RecordedEvent

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
ODD = {
    "text": 'quote " backslash \\ slash / \u2028 \U0001f600 é',
    "nul": "\x00",
    "n": [1, 2.5, True, None, {}],
}


@pytest.fixture(autouse=True)
def session() -> Session:
    """The session that events are for."""
    return Session.objects.create(session_id="s1", status="running", created_at=NOW)


def event(**fields: Any) -> NewEvent:
    return NewEvent(
        **({"event_type": "note", "session_id": "s1", "timestamp": "2026-03-01T10:00:00Z"} | fields)
    )


def raw(event_id: int | None) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(EVENT_COLUMNS)} FROM events WHERE id = %s", [event_id])
        return tuple(cursor.fetchone())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tool_name": "Bash", "tool_input": ODD, "tool_output": ODD, "error": "tab\t newline\n é \\N \\."},
        {"tool_output": "plain", "exit_code": -(2**63), "reason": "", "role": "user", "content": [ODD, {}]},
        {"tool_output": [], "tool_input": {}, "content": []},
        {"tool_output": False, "timestamp": "whenever \\t 'quoted'", "exit_code": 0},
        {"tool_output": 2**70},
    ],
    ids=range(6),
)
def test_rows_are_the_bytes_that_the_orm_would_write(fields: dict[str, Any]) -> None:
    values = {"event_type": "note", "timestamp": "2026-03-01T10:00:00Z"} | fields
    written = Event.objects.create(session_id="s1", **values)
    for others in (0, 10):  # alone, and among others
        *_, recorded = record_events([*[event()] * others, event(**fields)], NOW)
        assert isinstance(recorded, RecordedEvent)
        assert raw(recorded.event_id) == raw(written.pk)


def test_ids_go_on_after_those_of_others_and_follow_the_order() -> None:
    first = Event.objects.create(session_id="s1", event_type="x", timestamp="x").pk
    recorded = record_events([event(reason=str(n)) for n in range(5)], NOW)
    ids = [one.event_id for one in recorded if isinstance(one, RecordedEvent)]
    assert ids == sorted(ids)
    assert ids[0] is not None
    assert ids[0] > first
    assert Event.objects.create(session_id="s1", event_type="x", timestamp="x").pk > (ids[-1] or 0)


def test_what_is_refused_keeps_no_other_from_being_written() -> None:
    outcomes = record_events(
        [
            event(reason="a"),
            event(session_id="none"),
            event(error="\x00"),
            event(role="\ud800"),
            event(reason="b"),
        ],
        NOW,
    )
    assert [type(outcome) for outcome in outcomes] == [
        RecordedEvent,
        NotFound,
        UnprocessableRequest,
        UnprocessableRequest,
        RecordedEvent,
    ]
    assert list(Event.objects.order_by("id").values_list("reason", flat=True)) == ["a", "b"]


@pytest.mark.parametrize(
    ("timestamp", "instant"),
    [
        ("2026-03-01T10:00:00.5+02:00", datetime(2026, 3, 1, 8, 0, 0, 500000, tzinfo=UTC)),
        ("2026-03-01 10:00:00", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("yesterday", NOW),
        ("", NOW),
    ],
)
def test_context_holds_the_instant_or_the_receipt(timestamp: str, instant: datetime) -> None:
    (recorded,) = record_events([event(timestamp=timestamp)], NOW)
    assert isinstance(recorded, RecordedEvent)
    context = EventContext.objects.get(pk=recorded.event_id)
    assert context.instant_us == instants.instant_to_microseconds(instant)
    assert context.event.timestamp == timestamp


def test_context_keeps_what_the_door_knows() -> None:
    known = {
        "run_id": "run_1", "tool_use_id": "toolu_1", "subagent": "helper", "prompt_id": "p1", "duration_ms": 12,
        "model": "m", "input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 3, "cache_write_tokens": 4,
        "source": "claude-code",
    }  # fmt: skip
    (recorded,) = record_events([event(**known)], NOW)
    assert isinstance(recorded, RecordedEvent)
    context = EventContext.objects.get(pk=recorded.event_id)
    assert {name: getattr(context, name) for name in known} == known


def test_a_result_of_later_executors_is_kept_in_the_output() -> None:
    (recorded,) = record_events([event(event_type="result", result_text="done", result_data={"n": 1})], NOW)
    assert isinstance(recorded, RecordedEvent)
    row = Event.objects.get(pk=recorded.event_id)
    assert row.tool_output == {"result_text": "done", "result_data": {"n": 1}}


def test_the_end_of_a_session_is_noted_with_the_event() -> None:
    record_events([event(), event(event_type="session_stop", reason="completed"), event()], NOW)
    assert Session.objects.get().status == "finished"
    assert Event.objects.count() == 3


def foreign(timestamp: str) -> int:
    return int(Event.objects.create(session_id="s1", event_type="x", timestamp=timestamp).pk)


def test_events_of_other_programs_get_a_context_once() -> None:
    ids = [foreign("2026-03-01T09:00:00+01:00"), foreign("nonsense")]
    assert add_contexts_missing_in_range(ids[0], ids[-1], NOW) == 2
    assert add_contexts_missing_in_range(ids[0], ids[-1], NOW) == 0
    contexts = list(EventContext.objects.order_by("event_id"))
    assert [context.instant_us for context in contexts] == [
        instants.instant_to_microseconds(datetime(2026, 3, 1, 8, tzinfo=UTC)),
        instants.instant_to_microseconds(NOW),
    ]
    assert {context.source for context in contexts} == {"other"}


def test_everything_written_while_no_signalbox_ran_is_adopted() -> None:
    for _ in range(7):
        foreign("x")
    record_events([event()], NOW)
    assert add_all_missing_event_contexts(NOW, step=3) == 7
    assert EventContext.objects.count() == 8


def test_what_was_looked_at_once_is_not_looked_at_each_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events.AdoptionProgress, "upto", None)
    monkeypatch.setattr(events, "LATE", 2)
    for _ in range(7):
        foreign("x")
    assert add_new_missing_event_contexts(NOW, step=3) == 7
    EventContext.objects.all().delete()
    foreign("x")
    assert add_new_missing_event_contexts(NOW, step=3) == 3
    assert EventContext.objects.count() == 3
