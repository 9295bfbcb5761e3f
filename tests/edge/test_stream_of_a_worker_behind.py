"""A client comes back to a worker that has heard of less than the client was told: nothing is told twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from coordinator.feed.reader import FeedChange
from coordinator.live.channels import EventFrame, LiveChannel
from coordinator.live.hub import WantedTopics
from coordinator.live.streams import LiveStreams, StreamOpening, build_sse_frame

WANTED = WantedTopics(["events"])


def changes(first: int, last: int) -> list[FeedChange]:
    return [
        FeedChange(number, 0, "events", str(number), "ses_1", "insert") for number in range(first, last + 1)
    ]


async def render(batch: Sequence[FeedChange]) -> list[EventFrame]:
    return [build_sse_frame(change.id, "-evt-001", "event", b"{}") for change in batch]


async def allowed() -> None:
    """Stand for the check that the client may still listen."""


class Worker:
    """Streams over a hub and a database of the test's own, and what one stream was sent."""

    def __init__(self, *, position: int, can_replay: bool) -> None:
        feed = SimpleNamespace(add_watcher=lambda: None, remove_watcher=lambda: None)
        self.hub: Any = SimpleNamespace(position=position, feed=feed, listeners=[])
        self.sent: list[bytes] = []
        self.answer = can_replay
        threads: Any = SimpleNamespace(run_in_thread=self.run_in_thread)
        self.streams = LiveStreams(self.hub, threads, most=10, most_per_client=10)
        self.channel = self.streams.get_or_create_channel("all", lambda: LiveChannel(WANTED, render))

    async def run_in_thread(self, work: Callable[..., Any], *_args: Any, **_options: Any) -> Any:
        """Stand for the database; while it is asked, the worker hears of the next five changes."""
        assert work.__name__ == "can_replay_changes"
        batch = changes(self.hub.position + 1, self.hub.position + 5)
        for listener in self.hub.listeners:
            listener(batch)
        self.hub.position = batch[-1].id
        await asyncio.sleep(0.01)  # the channel renders and spreads them
        return self.answer

    async def send(self, message: Any) -> None:
        self.sent.append(message.get("body", b""))

    async def hello(self, upto: int) -> list[EventFrame]:
        return [build_sse_frame(upto, "-ini-001", "init", b"{}")]

    async def told(self, *, after: int) -> list[str]:
        """Open a stream for a client that was told up to `after`; return the ids of what it is told."""

        opening = StreamOpening("a client", self.channel, after, self.hello)
        stream = asyncio.ensure_future(self.streams.send_sse_stream(self.send, opening, allowed))
        await asyncio.sleep(0.05)
        self.streams.close_all_streams()
        await stream
        lines = b"".join(self.sent).decode().splitlines()
        return [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]


async def _told(*, position: int, after: int, can_replay: bool = True) -> list[str]:
    return await Worker(position=position, can_replay=can_replay).told(after=after)


def test_a_client_that_was_told_more_than_the_worker_has_heard_of_is_told_nothing_twice() -> None:
    told = asyncio.run(_told(position=10, after=13))
    assert told == ["14-evt-001", "15-evt-001"]


def test_an_id_of_another_database_begins_afresh_without_a_gap() -> None:
    told = asyncio.run(_told(position=10, after=9_999, can_replay=False))
    assert told == ["15", "15-ini-001"]  # the first frames hold what came while the database was asked
