"""A worker is killed and the server restarted under load: what was answered is there, once; streams see all, once."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import threading
import time
import uuid
from collections import Counter

import pytest

from tests.live.connections import Stream, connect, make_session, message, post, text_of
from tests.patience import PATIENCE
from tests.served import READY_WITHIN, Served

pytestmark = pytest.mark.served


WRITERS = 4
PAUSE = 0.01  # seconds a writer rests after each event: at any moment one is under way, and the tests get on


@pytest.fixture
def served(one_server: Served) -> Served:
    """A server that only these tests kill, which is at work."""
    return one_server.emptied()


class Writer(threading.Thread):
    """Posts numbered events one after another, whatever happens to the server; `sure` were answered 201."""

    def __init__(self, served: Served, session: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.served = served
        self.session = session
        self.sure: list[str] = []
        self.done = threading.Event()
        self.start()

    def run(self) -> None:
        numbers = itertools.count()
        while not self.done.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = connect(self.served)
                while not self.done.wait(PAUSE):
                    text = f"{self.name}-{next(numbers)}"
                    path = f"/sessions/{self.session}/events"
                    status, _ = post(connection, path, message(self.session, text))
                    if status == 201:
                        self.sure.append(text)

    def wrote(self, count: int) -> None:
        """Wait until `count` more events are answered."""
        target, deadline = len(self.sure) + count, time.monotonic() + PATIENCE
        while len(self.sure) < target:
            assert time.monotonic() < deadline, f"{self.name} gets nothing written"
            time.sleep(0.01)

    def finish(self) -> list[str]:
        """Stop and return the texts that were answered."""
        self.done.set()
        self.join(60)
        return self.sure


class Follower(threading.Thread):
    """A client of the stream that, whenever it is cut off, comes back with the last id it has seen."""

    def __init__(self, served: Served, session: str) -> None:
        super().__init__(daemon=True)
        self.served = served
        self.session = session
        self.streams: list[Stream] = []
        self.done = threading.Event()
        self.start()

    def run(self) -> None:
        last = "0"  # from the first change on
        while not self.done.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
                path = f"/sse/sessions?session_id={self.session}"
                stream = Stream(self.served, path, Last_Event_ID=last)
                self.streams.append(stream)
                while not stream.ended.wait(0.02) and not self.done.is_set():
                    pass
                stream.close()
                last = stream.last_id if stream.frames else last

    def seen(self) -> list[str]:
        """Return the texts of all events it was told, in order."""
        assert all(frame.event != "reset" for stream in self.streams for frame in stream.frames)
        return [text_of(event) for stream in list(self.streams) for event in stream.events()]

    def wait_for(self, count: int) -> None:
        """Wait until it was told `count` events."""
        deadline = time.monotonic() + 60  # a busy machine
        while len(self.seen()) < count:
            streams = [(len(stream.frames), stream.ended.is_set()) for stream in self.streams]
            assert time.monotonic() < deadline, f"told {len(self.seen())} of {count} events by {streams}"
            time.sleep(0.02)


def all_texts(served: Served, session: str) -> list[str]:
    """Return the texts of all events in the order in which they were committed, which the changes have."""
    rows = served.sql(
        "SELECT e.content FROM changes c JOIN events e ON CAST(e.id AS TEXT) = c.key"
        " WHERE c.topic = 'events' AND e.session_id = ? ORDER BY c.id",
        (session,),
    )
    return [json.loads(content)[0]["text"] for (content,) in rows]


def check(served: Served, writers: list[Writer], followers: list[Follower]) -> None:
    """Compare what was answered, what is stored and what the streams told."""
    sure = [text for writer in writers for text in writer.finish()]
    stored = all_texts(served, writers[0].session)
    assert len(sure) > 50
    assert Counter(sure) - Counter(stored) == Counter(), "an acknowledged event is lost"
    assert max(Counter(stored).values()) == 1, "an event is there twice"
    for follower in followers:
        follower.wait_for(len(stored))
        follower.done.set()
        follower.join(60)
        assert follower.seen() == stored, "a stream missed an event, or told one twice"
    assert any(len(follower.streams) > 1 for follower in followers), "no stream was cut: nothing was tested"


def begin(served: Served) -> tuple[list[Writer], list[Follower]]:
    session = f"ses_{uuid.uuid4().hex[:12]}"
    make_session(served, session)
    followers = [Follower(served, session) for _ in range(2)]
    return [Writer(served, session, f"w{number}") for number in range(WRITERS)], followers


def test_killed_workers_lose_no_acknowledged_event(served: Served) -> None:
    writers, followers = begin(served)
    for _ in range(4):  # both workers, most likely, and their successors
        writers[0].wrote(20)
        killed = served.kill_worker()
        deadline = time.monotonic() + 60
        while killed in served.worker_pids() or len(served.worker_pids()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    for writer in writers:
        writer.wrote(10)
    check(served, writers, followers)


def test_a_restart_under_load_loses_no_acknowledged_event(served: Served) -> None:
    writers, followers = begin(served)
    writers[0].wrote(20)
    served.stop()
    served.start()
    for writer in writers:
        writer.wrote(10)
    check(served, writers, followers)


def test_new_workers_take_over_under_load_and_no_acknowledged_event_is_lost(served: Served) -> None:
    writers, followers = begin(served)
    before = set(served.worker_pids())
    writers[0].wrote(20)
    assert served.process is not None
    served.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + READY_WITHIN  # it really starts, twice
    while before & set(served.worker_pids()) or len(served.worker_pids()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for writer in writers:
        writer.wrote(10)
    check(served, writers, followers)


def test_killed_server_loses_no_acknowledged_event(served: Served) -> None:
    writers, followers = begin(served)
    writers[0].wrote(40)
    workers = served.worker_pids()
    served.stop(signal.SIGKILL)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    served.start()
    for writer in writers:
        writer.wrote(10)
    check(served, writers, followers)
