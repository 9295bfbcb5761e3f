"""The index misses no event, in whatever order events commit and however long nobody indexed."""

from __future__ import annotations

import itertools
import threading

import pytest
from django.db import connection, transaction

from coordinator.actions import search
from coordinator.actions.search.progress import save_index_progress
from coordinator.engine import full_text
from coordinator.feed import reader as feed
from coordinator.lib import instants
from coordinator.models import Change, Event, EventContext, Session
from coordinator.search.events import SearchQuery, search_events
from coordinator.search.text import split_into_index_words
from tests.patience import PATIENCE
from tests.people import signed_in
from tests.search.indexing import index_new
from tests.timelines import BEGAN, add_events, make_session, said

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    return make_session()


def found(text: str) -> list[int]:
    return [hit.event.pk for hit in search_events(SearchQuery(text)).hits]


@pytest.fixture
def late(session: Session) -> Event:
    """An event that commits after 10,000 newer ids were indexed."""
    (late,) = add_events(session, [said("user", "latecomer")])
    EventContext.objects.all().delete()
    Event.objects.filter(pk=late.pk).delete()
    add_far_ahead(session, late.pk + 10_000)
    index_new()
    late.save(force_insert=True)
    return late


def add_far_ahead(session: Session, pk: int) -> None:
    """Add an event as if many thousand had been added just before it."""
    Event.objects.create(
        pk=pk, session=session, event_type="message", timestamp=instants.format_canonical_instant(BEGAN)
    )


def test_an_event_that_commits_after_many_newer_ones_is_indexed(late: Event) -> None:
    assert index_new() == 1
    assert found("latecomer") == [late.pk]


def test_an_event_that_committed_late_counts_as_not_indexed(late: Event) -> None:
    assert search.count_unindexed_events() == 1
    index_new()
    assert search.count_unindexed_events() == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time")
def test_a_transaction_that_commits_behind_a_quicker_one_is_indexed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, may_commit = threading.Event(), threading.Event()

    def write_slowly() -> None:
        with transaction.atomic():
            add_events(session, [said("user", "latecomer")])
            written.set()
            may_commit.wait(PATIENCE)
        connection.close()

    slow = threading.Thread(target=write_slowly)
    slow.start()
    written.wait(PATIENCE)
    try:
        add_far_ahead(session, 10**6)
        search.index_new_events()
    finally:
        may_commit.set()
        slow.join()
    search.index_new_events()
    assert len(found("latecomer")) == 1


def test_what_the_feed_has_forgotten_is_indexed_all_the_same(session: Session) -> None:
    index_new()
    (row,) = add_events(session, [said("user", "needle")])
    add_events(session, [said("user", "hay")])
    index_newest_change_alone()
    assert index_new() == 2
    assert found("needle") == [row.pk]


def index_newest_change_alone() -> None:
    """Prune the feed, so that nobody can tell what was before its newest change."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    Change.objects.filter(pk__lt=feed.find_newest_change_id()).delete()


def test_a_rebuild_that_was_interrupted_is_finished_by_housekeeping(session: Session) -> None:
    add_events(session, [said("user", f"needle {n}") for n in range(3)])
    index_new()

    def interrupt(_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search.rebuild_search_index(interrupt)
    index_new()
    assert len(found("needle")) == 3
    assert search.count_unindexed_events() == 0


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.actions.search.indexing.STEP", 2)
    monkeypatch.setattr("coordinator.actions.search.indexing.WINDOW", 3)


def test_one_call_takes_on_so_much_and_the_next_goes_on(session: Session, small_steps: None) -> None:
    add_events(session, [said("user", f"needle {n}") for n in range(9)])
    index_new()
    search.rebuild_search_index()
    assert len(found("needle")) == 9
    add_events(session, [said("user", f"needle {n}") for n in range(9)])
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    assert search.index_new_events(most=4) >= 4
    assert search.count_unindexed_events() > 0
    while search.index_new_events(most=4):
        pass
    assert (search.count_unindexed_events(), len(found("needle"))) == (0, 18)


def test_the_page_says_until_when_the_index_is_complete(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_new()
    monkeypatch.setattr("coordinator.search.progress.MANY_CHANGES", 3)
    add_events(session, [said("user", f"needle {n}") for n in range(20)])
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    client = signed_in("viewer")
    page = " ".join(client.get("/ui/search/", {"q": "needle"}).content.decode().split())
    assert "Complete until <time" in page
    assert "20 events received since are being indexed, and not found until then." in page
    search.index_new_events()
    assert "being indexed" not in client.get("/ui/search/", {"q": "needle"}).content.decode()


def test_a_sweep_says_how_many_events_it_has_before_it(session: Session) -> None:
    rows = add_events(session, [said("user", f"needle {n}") for n in range(20)])
    index_new()
    save_index_progress(swept=rows[4].pk)
    page = " ".join(signed_in("viewer").get("/ui/search/", {"q": "needle"}).content.decode().split())
    assert "15 events received since are being indexed" in page
    assert "Complete until <time" in page


def test_of_a_bulk_fill_housekeeping_rests_little(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr("coordinator.actions.search.indexing.time.sleep", rests.append)
    monkeypatch.setattr(
        "coordinator.actions.search.indexing.time.monotonic", itertools.count(0, 0.001).__next__
    )
    monkeypatch.setattr("coordinator.actions.search.indexing.STEP", 2)
    monkeypatch.setattr("coordinator.actions.search.indexing.BULK", 6)
    add_events(session, [said("user", f"needle {n}") for n in range(20)])
    search.rebuild_search_index()
    rests.clear()
    save_index_progress(swept=0)
    with connection.cursor() as cursor:
        full_text.clear_search_index()
        cursor.execute("SELECT 1")
    assert search.index_slice_and_count_events() == 20
    assert rests[0] > 10 * rests[5] > 0


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite gathers nothing")
def test_no_search_has_to_read_what_postgresql_gathered(session: Session) -> None:
    add_events(session, [said("user", f"gathered word{number}") for number in range(50)])
    search.index_slice_and_count_events()
    with connection.cursor() as cursor:
        for index in ("sbx_search_words", "sbx_search_terms_pieces"):
            cursor.execute("SELECT gin_clean_pending_list(%s::regclass)", [index])
            assert cursor.fetchone() == (0,)
    assert len(found("word49")) == 1


def test_words_are_cut_alike_in_texts_with_and_without_letters_beyond_ascii() -> None:
    plain = "def test_it(self): return x+=1\tA-B\x1fC\n"
    assert (
        split_into_index_words(plain)
        == split_into_index_words(plain + "…")
        == [*("def", "test", "it", "self", "return", "x", "1", "a", "b", "c")]
    )
