"""What the feed's thread waits for: other threads, and other programs' writes."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection

from coordinator.engine import commits
from coordinator.feed.reader import ChangeFeed
from coordinator.lib.wake_events import FileWriteWatcher, PollableEvent
from tests.feed.test_feed import Heard
from tests.patience import AT_ONCE, PATIENCE, until

on_sqlite = pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL notifies")


@pytest.fixture
def alarm() -> Iterator[PollableEvent]:
    made = PollableEvent()
    yield made
    made.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[FileWriteWatcher]:
    watch = FileWriteWatcher(f"{tmp_path}/log")
    yield watch
    watch.close()


def test_whoever_waits_or_comes_to_wait_is_woken_until_it_is_cleared(alarm: PollableEvent) -> None:
    threading.Timer(0.05, alarm.set).start()
    began = time.monotonic()
    assert alarm.wait(PATIENCE)
    alarm.set()
    assert alarm.wait(PATIENCE)
    assert time.monotonic() - began < AT_ONCE
    alarm.clear()
    assert not alarm.wait(0)
    alarm.set()
    assert alarm.wait(PATIENCE)


def test_a_thousand_wakes_from_many_threads_are_all_heard(alarm: PollableEvent) -> None:
    """Each is heard before the next is asked for, so one that were lost would be waited for in vain."""
    asked, heard = threading.Semaphore(0), []

    def wake() -> None:
        for _ in range(250):
            assert asked.acquire(timeout=PATIENCE)
            alarm.set()

    threads = [threading.Thread(target=wake) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(1000):
        asked.release()
        heard.append(alarm.wait(PATIENCE))
        alarm.clear()
    for thread in threads:
        thread.join()
    assert all(heard)


def test_an_alarm_that_is_closed_wakes_nobody_and_fails_nowhere() -> None:
    closed = PollableEvent()
    closed.close()
    closed.set()
    assert closed.is_set()


def test_a_write_to_the_file_is_told_of_also_where_it_is_made_later(
    watched: FileWriteWatcher, alarm: PollableEvent, tmp_path: Path
) -> None:
    assert not watched.consume_write_events()
    (tmp_path / "log").write_text("one")
    assert not alarm.wait(PATIENCE, watched)  # it is not what was set
    assert watched.consume_write_events()
    assert not watched.consume_write_events()
    (tmp_path / "log").unlink()
    (tmp_path / "log").write_text("made anew")
    assert watched.consume_write_events()


def test_while_it_is_paused_nothing_is_told(
    watched: FileWriteWatcher, alarm: PollableEvent, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("before")
    watched.pause_watching()
    watched.pause_watching()
    (tmp_path / "log").write_text("meanwhile")
    watched.resume_watching()
    watched.resume_watching()
    assert not watched.consume_write_events()
    assert not alarm.wait(0, watched)
    (tmp_path / "log").write_text("again")
    assert watched.consume_write_events()


def test_where_its_folder_went_while_it_was_paused_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "going").mkdir()
    watch = FileWriteWatcher(f"{tmp_path}/going/log")
    watch.pause_watching()
    (tmp_path / "going").rmdir()
    with pytest.raises(FileNotFoundError):
        watch.resume_watching()
    assert watch.is_paused
    watch.close()


def test_a_write_to_another_file_is_none(watched: FileWriteWatcher, tmp_path: Path) -> None:
    (tmp_path / "log-2").write_text("other")
    (tmp_path / "lo").write_text("other")
    assert not watched.consume_write_events()


def test_more_writes_than_the_kernel_remembers_are_told_of_as_one(
    watched: FileWriteWatcher, tmp_path: Path
) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with (tmp_path / "a").open("wb", buffering=0) as one, (tmp_path / "b").open("wb", buffering=0) as other:
        for _ in range(most // 2 + 1):  # in turns: the same again is one
            one.write(b".")
            other.write(b".")
    assert watched.consume_write_events()


def test_where_a_folder_is_not_there_nothing_is_left_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        FileWriteWatcher(f"{tmp_path}/nowhere/log")
    assert os.listdir("/proc/self/fd") == before


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
def test_another_program_s_commit_is_told_of_by_the_kernel(
    followed: Callable[[], tuple[ChangeFeed, Heard]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "QUIET_EVERY", 600.0)  # nobody looks by himself
    _, heard = followed()
    for count in range(1, 20):
        change_from_outside()
        heard.wait(count)


@on_sqlite
@pytest.mark.django_db(transaction=True)
def test_a_commit_long_after_its_rows_were_written_is_told_of(
    followed: Callable[[], tuple[ChangeFeed, Heard]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "QUIET_EVERY", 600.0)
    feed, heard = followed()
    file = sqlite3.connect(connection.settings_dict["NAME"], timeout=PATIENCE)
    file.execute("PRAGMA cache_size = 1")  # so that rows are written before the commit
    rows = [("x" * 1000,) for _ in range(200)]
    file.executemany("INSERT INTO changes (at, topic, key, op) VALUES (1, 'sessions', ?, 'insert')", rows)
    written = time.monotonic()
    until(lambda: feed.looked_at > written, "it was not told of what was written")
    assert not heard.changes
    file.commit()
    file.close()
    heard.wait(200)


class SilentWatch(FileWriteWatcher):
    """Tells of no write to the file."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}-of-another")
        self.is_closed = False

    def close(self) -> None:
        super().close()
        self.is_closed = True


@on_sqlite
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["it refuses", "it keeps silent"])
def test_where_the_kernel_tells_nothing_commits_are_seen_all_the_same(
    followed: Callable[[], tuple[ChangeFeed, Heard]], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    silent: list[SilentWatch] = []

    def watch(path: str) -> FileWriteWatcher:
        if how == "it refuses":
            raise OSError("no such call")
        silent.append(SilentWatch(path))
        return silent[-1]

    monkeypatch.setattr(commits, "FileWriteWatcher", watch)
    _, heard = followed()
    for count in range(1, 4):
        change_from_outside()
        heard.wait(count)
    until(  # it is judged by commits that come after a while without any
        lambda: all(one.is_closed for one in silent) or change_from_outside(),
        "it is still relied on",
        rest=lambda: time.sleep(2 * commits.QUIET_EVERY),
    )
