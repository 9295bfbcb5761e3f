"""An id that is far from all others, such as another program may give, makes nobody walk through what lies between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordinator.actions import search
from coordinator.actions.sessions.events import add_all_missing_event_contexts, record_events
from coordinator.actions.upkeep import pruning
from coordinator.models import Event, EventContext, Session
from coordinator.sessions.events import NewEvent

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC).replace(microsecond=0)
OLD = NOW - timedelta(days=40)
FAR = 5 * 10**12


@pytest.fixture(autouse=True)
def far_apart() -> None:
    Session.objects.create(session_id="ses_a", status="running", created_at=OLD)
    blocks = [{"type": "text", "text": "a story"}]
    told = NewEvent(
        event_type="message", session_id="ses_a", timestamp=OLD.isoformat(), role="user", content=blocks
    )
    record_events([told], OLD)
    Event.objects.create(
        id=FAR, session_id="ses_a", event_type="message", timestamp=OLD.isoformat(), content=blocks
    )


def test_all_events_are_adopted_in_a_few_questions() -> None:
    with CaptureQueriesContext(connection) as queries:
        assert add_all_missing_event_contexts(OLD, step=1) == 1
    assert len(queries) < 20
    assert EventContext.objects.filter(pk=FAR).exists()


@pytest.mark.usefixtures("unpruned")
def test_bodies_are_pruned_in_a_few_questions() -> None:
    add_all_missing_event_contexts(OLD)
    rule = next(one for one in pruning.build_retention_rules(event_bodies=30) if one.name == "event-bodies")
    with CaptureQueriesContext(connection) as queries:
        assert pruning.apply_retention_rule(rule, NOW, write=True).rows == 2
    assert len(queries) < 40


def test_words_of_deleted_events_are_forgotten_in_a_few_questions() -> None:
    add_all_missing_event_contexts(OLD)
    search.rebuild_search_index()
    Event.objects.all().delete()
    with CaptureQueriesContext(connection) as queries:
        assert search.unindex_deleted_events() == 2
    assert len(queries) < 120
