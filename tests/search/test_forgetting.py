"""Words of deleted and changed events leave the index, in small pieces, and delay nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordinator.actions import search
from coordinator.actions.search import unindexing
from coordinator.actions.sessions import sessions
from coordinator.actions.upkeep import pruning
from coordinator.engine import full_text
from coordinator.identity.actors import system_actor
from coordinator.models import Event, EventContext, Session
from coordinator.operations.jobs import JOBS, Housekeeper, PeriodicJob
from coordinator.search.events import SearchQuery, search_events
from tests.patience import PATIENCE
from tests.search.indexing import check_index, index_new, indexed, words_kept
from tests.timelines import BEGAN, add_events, called, make_session, said

pytestmark = pytest.mark.django_db
TESTS = system_actor("tests")


@pytest.fixture
def session() -> Session:
    return make_session(status="finished")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody rests, and a few words are looked at together."""
    monkeypatch.setattr(unindexing, "REST_PER_WORK", 0)
    monkeypatch.setattr(unindexing, "WORDS_LOOKED_AT", 2)
    monkeypatch.setattr(unindexing, "EVENTS_LOOKED_AT", 3)


def test_words_of_a_deleted_session_are_kept_nowhere(session: Session) -> None:
    other = make_session("ses_other")
    add_events(other, [said("user", "shared words")])
    add_events(session, [said("user", f"secret{n} shared") for n in range(7)])
    index_new()
    sessions.remove_session(session.pk, actor=TESTS, now=BEGAN)
    assert search.unindex_deleted_events() == 7
    assert words_kept() == ["shared", "words"]
    check_index()


@pytest.mark.usefixtures("unpruned")
def test_words_of_emptied_events_are_forgotten(session: Session) -> None:
    (row, begun) = add_events(session, [said("user", "secret plan"), *called("Bash", {"command": "secret"})])[
        :2
    ]
    index_new()
    EventContext.objects.update(received_at=BEGAN)
    bodies = next(
        rule for rule in pruning.build_retention_rules(event_bodies=1) if rule.name == "event-bodies"
    )
    pruning.apply_retention_rule(bodies, BEGAN + timedelta(days=3), write=True)
    index_new()
    assert search.unindex_deleted_events() >= 2
    assert indexed("secret") == []
    assert "secret" not in words_kept()
    assert row.pk in [hit.event.pk for hit in search_events(SearchQuery("pruned")).hits]
    assert [hit.event.pk for hit in search_events(SearchQuery("bash")).hits][-1] == begun.pk
    check_index()


def test_words_that_an_older_version_left_behind_go_too(session: Session) -> None:
    add_events(session, [said("user", "needle")])
    index_new()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO sbx_search_terms (word) VALUES ('leftover')")
    search.unindex_deleted_events()
    assert words_kept() == ["needle"]


def test_a_rebuild_keeps_only_words_that_are_used(session: Session) -> None:
    add_events(session, [said("user", "needle"), said("user", "gone")])
    index_new()
    EventContext.objects.last().delete()
    Event.objects.last().delete()
    search.rebuild_search_index()
    assert words_kept() == ["needle"]


def test_more_events_than_fit_into_memory_are_forgotten_in_turns(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unindexing, "MOST_FORGOTTEN", 2)
    add_events(session, [said("user", f"needle {n}") for n in range(5)])
    index_new()
    sessions.remove_session(session.pk, actor=TESTS, now=BEGAN)
    assert (search.unindex_deleted_events(), indexed("needle"), words_kept()) == (5, [], [])


def test_no_query_walks_through_the_whole_index(session: Session) -> None:
    add_events(session, [said("user", f"needle{n} hay") for n in range(9)])
    index_new()
    Event.objects.filter(pk=EventContext.objects.last().pk).delete()
    with CaptureQueriesContext(connection) as asked:
        search.unindex_deleted_events()
    walks = [query["sql"] for query in asked if "FROM sbx_places" in query["sql"]]
    assert connection.vendor == "postgresql" or len(walks) == 4
    assert all("term >" in sql and "term <=" in sql for sql in walks)


def test_what_is_rebuilt_meanwhile_is_left_as_it_is(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = add_events(session, [said("user", "before")])
    index_new()
    Event.objects.filter(pk=row.pk).update(content=[{"type": "text", "text": "after"}])
    index_new()
    collect = full_text.collect_words_into_temp_tables

    def collect_and_rebuild(gone: list[int], stretches: Iterable[tuple[str, str]]) -> None:
        collect(gone, stretches)
        search.rebuild_search_index()

    monkeypatch.setattr(full_text, "collect_words_into_temp_tables", collect_and_rebuild)
    search.unindex_deleted_events()
    assert (indexed("before"), indexed("after")) == ([], [row.pk])
    check_index()


@pytest.mark.django_db(transaction=True)
def test_requests_lapse_while_the_index_forgets() -> None:
    forgetting_began, may_end, lapsed = threading.Event(), threading.Event(), threading.Event()

    def forget(_now: datetime) -> None:
        forgetting_began.set()
        may_end.wait(PATIENCE)

    def lapse(_now: datetime) -> None:
        if forgetting_began.is_set():
            lapsed.set()

    is_alone = next(job.alone for job in JOBS if job.name == "search:forget")
    every = timedelta(seconds=0)
    keeper = Housekeeper(
        lambda: None,
        [
            PeriodicJob("forget", timedelta(hours=1), forget, alone=is_alone),
            PeriodicJob("lapse", every, lapse),
        ],
    )
    keeper.start()
    try:
        assert forgetting_began.wait(60)
        assert lapsed.wait(60)
    finally:
        may_end.set()
        keeper.stop()
