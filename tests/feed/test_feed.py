from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from coordinator.engine import commits
from coordinator.engine.commits import SqliteCommitWatcher
from coordinator.feed import reader as feed
from coordinator.feed.reader import ChangeFeed, FeedChange
from coordinator.models import Session
from tests.patience import AT_ONCE

pytestmark = pytest.mark.django_db(transaction=True)


class Heard:
    """A listener that can be waited for."""

    def __init__(self) -> None:
        self.changes: list[FeedChange] = []
        self._more = threading.Condition()

    def __call__(self, batch: Sequence[FeedChange]) -> None:
        with self._more:
            self.changes.extend(batch)
            self._more.notify_all()

    def wait(self, count: int, within: float = 60.0) -> list[FeedChange]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.changes) >= count, within), self.changes
        return self.changes


@pytest.fixture
def following() -> Iterator[tuple[ChangeFeed, Heard]]:
    """A running feed and what it tells."""
    running, heard = ChangeFeed(), Heard()
    running.listeners.append(heard)
    running.start_feed()
    yield running, heard
    running.stop_feed()


def make(name: str) -> Session:
    return Session.objects.create(session_id=name, status="running", created_at=timezone.now())


def test_changes_are_told_in_order_each_once(following: tuple[ChangeFeed, Heard]) -> None:
    _, heard = following
    for number in range(20):
        make(f"s{number}")
    changes = heard.wait(20)
    assert [change.key for change in changes] == [f"s{number}" for number in range(20)]
    assert [change.id for change in changes] == sorted({change.id for change in changes})
    assert {(change.topic, change.op) for change in changes} == {("sessions", "insert")}


def test_a_feed_starts_with_what_is_new(following: tuple[ChangeFeed, Heard]) -> None:
    make("before")
    following[1].wait(1)
    later, heard = ChangeFeed(), Heard()
    later.listeners.append(heard)
    later.start_feed()
    make("after")
    assert [change.key for change in heard.wait(1)] == ["after"]
    later.stop_feed()


def test_a_listener_that_fails_does_not_silence_the_others(following: tuple[ChangeFeed, Heard]) -> None:
    running, heard = following

    def fail(batch: Sequence[FeedChange]) -> None:
        raise RuntimeError("no")

    running.listeners.insert(0, fail)
    make("one")
    assert heard.wait(1)[0].key == "one"


def test_a_feed_whose_connection_is_killed_opens_another_and_misses_nothing(
    following: tuple[ChangeFeed, Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, heard = following
    make("before")
    heard.wait(1)
    kill = kill_on_postgres if connection.vendor == "postgresql" else break_on_sqlite
    with kill(monkeypatch):
        make("while it is gone")
    make("after")
    assert [change.key for change in heard.wait(3)] == ["before", "while it is gone", "after"]


@contextlib.contextmanager
def kill_on_postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'signalbox-feed'"
            " AND datname = current_database()"
        )
        assert cursor.fetchone()[0] >= 1
    yield


@contextlib.contextmanager
def break_on_sqlite(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the connection's next look fail, as one on a file that went away does."""
    look: Callable[..., int] = SqliteCommitWatcher.read_data_version
    broken = threading.Event()

    def fail_once(ear: Any) -> int:
        if not broken.is_set():
            broken.set()
            ear.raw.close()
        return look(ear)

    monkeypatch.setattr(SqliteCommitWatcher, "read_data_version", fail_once)
    assert broken.wait(60)
    yield


def kept_ids() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM changes ORDER BY id")
        return [row[0] for row in cursor.fetchall()]


def test_pruning_keeps_the_newest_rows() -> None:
    for number in range(10):
        make(f"s{number}")
    before = kept_ids()
    assert feed.prune_changes(timezone.now(), keep_rows=3) == len(before) - 3
    assert kept_ids() == before[-3:]


def test_pruning_forgets_what_is_old_but_never_the_last_row() -> None:
    for number in range(10):
        make(f"s{number}")
    last = kept_ids()[-1]
    feed.prune_changes(timezone.now() + timedelta(hours=25))
    assert kept_ids() == [last]
    assert feed.prune_changes(timezone.now() + timedelta(hours=25)) == 0


def test_only_what_is_kept_can_be_replayed() -> None:
    for number in range(10):
        make(f"s{number}")
    ids = kept_ids()
    assert all(feed.can_replay_changes(one) for one in ids)
    feed.prune_changes(timezone.now(), keep_rows=3)
    assert [feed.can_replay_changes(one) for one in ids] == [False] * 6 + [True] * 4
    assert not feed.can_replay_changes(ids[-1] + 1)
    assert not feed.can_replay_changes(-1)


def test_a_page_of_changes_ends_where_it_is_told_to() -> None:
    for number in range(5):
        make(f"s{number}")
    ids = kept_ids()
    assert [c.id for c in feed.list_changes_after(ids[0], upto=ids[3])] == ids[1:4]
    assert [c.id for c in feed.list_changes_after(ids[0], upto=ids[3], limit=2)] == ids[1:3]


def test_the_feed_looks_by_itself_where_nobody_notifies(following: tuple[ChangeFeed, Heard]) -> None:
    """A row written without a trigger's NOTIFY, or while it was off, is found within the quiet time."""
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO changes (at, topic, key, op) VALUES (1, 'sessions', 'x', 'insert')")
    following[1].wait(1)
    assert time.monotonic() - began < AT_ONCE


def test_the_first_who_waits_ends_the_slow_pace_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "QUIET_POLL_SECONDS", 60.0)
    running, heard = ChangeFeed(), Heard()
    running.listeners.append(heard)
    running.start_feed()
    running.add_watcher()
    make("while-somebody-waits")
    assert [change.key for change in heard.wait(1)] == ["while-somebody-waits"]
    running.remove_watcher()
    running.stop_feed()
