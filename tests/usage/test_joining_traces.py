"""A trace that a later export names becomes part of the session of that name, whatever was written before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator.actions.search.indexing import index_slice_and_count_events
from coordinator.actions.search.unindexing import unindex_deleted_events
from coordinator.models import (
    AuditLog,
    Event,
    EventContext,
    ModelRequestUsage,
    Note,
    Session,
    SessionTitle,
    UsageDay,
)
from coordinator.search.events import walk_session_index_or_none
from coordinator.usage.reading import load_usage_by_session
from tests.transcripts.test_telemetry import span, traces
from tests.usage.test_telemetry import CHAT, TALK, figures, take

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TOOL = {
    "gen_ai__operation__name": "execute_tool",
    "gen_ai__tool__name": "lookup",
    "gen_ai__tool__call__id": "call_1",
    "gen_ai__tool__call__arguments": '{"parcel": "quetzal"}',
    "gen_ai__tool__call__result": "moving",
}


def known_session() -> Session:
    """Return the session of the conversation, which an earlier trace has made."""
    earlier = span(9, NOW - timedelta(hours=1), trace=7, **CHAT, **TALK)
    take(traces(earlier))
    return Session.objects.get(executor_session_id="talk-1")


def unnamed_part() -> dict[str, Any]:
    return traces(span(2, NOW, parent=1, **CHAT), span(3, NOW, parent=1, **TOOL))


def test_a_trace_that_is_named_later_joins_the_session_that_exists() -> None:
    session = known_session()
    take(unnamed_part())
    apart = Session.objects.exclude(pk=session.pk).get()
    take(traces(span(1, NOW, gen_ai__operation__name="invoke_agent", **TALK)))
    assert list(Session.objects.all()) == [session]
    assert figures("talk-1") == (2, 20, 10, 0, 0)
    assert not EventContext.objects.filter(session_id=apart.pk).exists()
    assert not UsageDay.objects.filter(session_id=apart.pk).exists()
    day = UsageDay.objects.get(session_id=session.pk, day="2026-11-22", model="gpt-4o")
    assert (day.input_tokens, day.cost) == (
        20,
        pytest.approx(load_usage_by_session([session.pk])[session.pk].cost),
    )
    row = AuditLog.objects.get(event_type="SESSION_JOINED")
    assert (row.target_id, row.metadata["into"]) == (apart.pk, session.pk)
    # Sent again, nothing is new.
    before = Event.objects.count()
    take(unnamed_part())
    assert (Event.objects.count(), figures("talk-1")) == (before, (2, 20, 10, 0, 0))
    assert not ModelRequestUsage.objects.filter(request_key__startswith=apart.pk).exists()


def test_the_end_of_the_trace_ends_no_session_that_goes_on() -> None:
    session = known_session()
    take(traces(span(2, NOW, **CHAT)))  # a root that names nothing: its session is over
    apart = Session.objects.exclude(pk=session.pk).get()
    assert apart.status == "finished"
    take(traces(span(4, NOW + timedelta(seconds=2), **CHAT, **TALK)))
    assert list(Session.objects.values_list("pk", "status")) == [(session.pk, "running")]
    assert not Event.objects.filter(event_type="session_stop").exists()
    assert Event.objects.filter(event_type="turn_end").count() == 1


def test_search_finds_what_was_moved_in_its_new_session() -> None:
    session = known_session()
    take(unnamed_part())
    index_slice_and_count_events()
    apart = Session.objects.exclude(pk=session.pk).get()
    found = walk_session_index_or_none(apart.pk, "quetzal")
    assert found is not None
    assert found.ids
    take(traces(span(1, NOW, gen_ai__operation__name="invoke_agent", **TALK)))
    unindex_deleted_events()
    moved = walk_session_index_or_none(session.pk, "quetzal")
    assert moved is not None
    assert list(moved.ids) == list(found.ids)


@pytest.mark.parametrize("kind", ["note", "title"])
def test_a_session_that_a_person_has_written_to_stays_apart(kind: str) -> None:
    session = known_session()
    take(unnamed_part())
    apart = Session.objects.exclude(pk=session.pk).get()
    if kind == "note":
        Note.objects.create(session=apart, text="look at this", written_by="user:ann", written_at=NOW)
    else:
        SessionTitle.objects.update_or_create(
            session=apart, defaults={"title": "Parcels", "source": "person", "set_by": "ann", "set_at": NOW}
        )
    take(traces(span(1, NOW, gen_ai__operation__name="invoke_agent", **TALK)))
    assert Session.objects.filter(pk=apart.pk).exists()
    assert figures() == (2, 20, 10, 0, 0)
