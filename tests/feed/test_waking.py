"""What the feed's thread sees of other programs' commits on SQLite."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from coordinator.engine import commits
from coordinator.feed.reader import ChangeFeed
from tests.feed.test_feed import Heard
from tests.patience import PATIENCE, until

on_sqlite = pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL notifies")


@pytest.fixture
def followed() -> Iterator[Callable[[], tuple[ChangeFeed, Heard]]]:
    """A function that starts a feed for whom somebody waits and to whom nobody says a word."""
    running: list[ChangeFeed] = []

    def start() -> tuple[ChangeFeed, Heard]:
        feed, heard = ChangeFeed(), Heard()
        feed.listeners.append(heard)
        running.append(feed)
        feed.start_feed()
        feed.add_watcher()
        return feed, heard

    yield start
    for feed in running:
        feed.stop_feed()


def change_from_outside() -> None:
    with sqlite3.connect(connection.settings_dict["NAME"], timeout=PATIENCE) as file:
        file.execute("INSERT INTO changes (at, topic, key, op) VALUES (1, 'sessions', 'x', 'insert')")
    file.close()


@on_sqlite
@pytest.mark.django_db(transaction=True)
def test_another_program_s_commit_is_seen_by_whom_it_does_not_wake(
    followed: Callable[[], tuple[ChangeFeed, Heard]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "QUIET_POLL_SECONDS", 600.0)  # only who is waited for polls in time
    _, heard = followed()
    for count in range(1, 20):
        change_from_outside()
        heard.wait(count)


@on_sqlite
@pytest.mark.django_db(transaction=True)
def test_a_commit_is_seen_when_it_is_made_not_when_its_rows_are_written(
    followed: Callable[[], tuple[ChangeFeed, Heard]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "QUIET_POLL_SECONDS", 600.0)
    feed, heard = followed()
    file = sqlite3.connect(connection.settings_dict["NAME"], timeout=PATIENCE)
    file.execute("PRAGMA cache_size = 1")  # so that rows are written before the commit
    rows = [("x" * 1000,) for _ in range(200)]
    file.executemany("INSERT INTO changes (at, topic, key, op) VALUES (1, 'sessions', ?, 'insert')", rows)
    written = time.monotonic()
    until(lambda: feed.looked_at > written, "it did not look")
    assert not heard.changes
    file.commit()
    file.close()
    heard.wait(200)
