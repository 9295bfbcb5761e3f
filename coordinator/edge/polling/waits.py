"""Long polls: check, sleep until the feed reports something relevant, check again. Nobody polls the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from django.conf import settings
from django.db import OperationalError

from coordinator.edge.http.concurrency import ConcurrencyLimit
from coordinator.feed.reader import FeedChange
from coordinator.lib.asgi import Receive
from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import FeedHub, TopicIndex, WantedTopics

T = TypeVar("T")

log = logging.getLogger(__name__)

# A change that slipped by (a trigger dropped by hand) costs a waiter at most this many seconds.
LOOK_ANYWAY = 15.0
LOOK_AGAIN = 1.0  # seconds after which a look that found the database busy is repeated


class DisconnectWatcher:
    """Whether the client of a held request has gone away. One a request, for all of it: `with Disconnect(receive)`.

    Only one may listen, and only once: gunicorn's `receive` says `http.disconnect` for ever after a listener was
    called off, though the client is still there. What is over within `after` seconds is not listened to at all.
    """

    __slots__ = ("_receive", "_then", "_watch", "happened", "was_cut")

    def __init__(self, receive: Receive, *, after: float = 0.0) -> None:
        self.happened = False
        self.was_cut = False
        self._then: set[Callable[[], object]] = set()
        self._receive = receive
        self._watch: asyncio.Task[None] | asyncio.TimerHandle
        if after:
            self._watch = asyncio.get_running_loop().call_later(after, self.start_listening)
        else:
            self.start_listening()

    def __enter__(self) -> DisconnectWatcher:
        return self

    def __exit__(self, *_problem: object) -> None:
        self._watch.cancel()

    def start_listening(self) -> None:
        self._watch = asyncio.ensure_future(self.wait_for_disconnect(self._receive))

    async def wait_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.run_disconnect_callbacks()

    def simulate_client_disconnect(self) -> None:
        """Go on as if the client had gone: it may not stay."""
        if not self.happened:
            self.was_cut = True
            self.run_disconnect_callbacks()

    def run_disconnect_callbacks(self) -> None:
        self.happened = True
        for call in tuple(self._then):
            call()

    @contextlib.contextmanager
    def watch_disconnect_during_block(self, call: Callable[[], object]) -> Iterator[None]:
        """Have `call` called if it happens inside this block."""
        self._then.add(call)
        try:
            yield
        finally:
            self._then.discard(call)


class WakeUpEvent:
    """What wakes one waiter, or time. Slighter than asyncio's Event and wait_for, which are a task for each of many."""

    __slots__ = ("_rung", "_sleeper")

    def __init__(self) -> None:
        self._rung = False
        self._sleeper: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the waiter, or let it not fall asleep."""
        self._rung = True
        self.wake_sleeper()

    def clear(self) -> None:
        self._rung = False

    async def wait(self, seconds: float) -> None:
        """Sleep until it rings, if it has not rung already, but no longer than so many seconds."""
        if self._rung:
            return
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        timer = loop.call_later(seconds, self.wake_sleeper)
        try:
            await self._sleeper
        finally:
            timer.cancel()
            self._sleeper = None

    def wake_sleeper(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)


class LongPollWaiters:
    """All waiters of one process. Each held poll takes a slot of `poll_limit`."""

    def __init__(self, hub: FeedHub, threads: EdgeThreads) -> None:
        self._threads = threads
        self._hub = hub
        self._waiting = TopicIndex[WakeUpEvent]()
        self.poll_limit = ConcurrencyLimit(settings.MAX_POLLS, "polls")
        self._closing = False
        hub.listeners.append(self.wake_waiters_of_changed_topics)

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait_until(
        self,
        check: Callable[[], T | None],
        *,
        topics: Iterable[str],
        timeout: float,
        still_allowed: Callable[[], Awaitable[object]],
        disconnect: DisconnectWatcher | None = None,
    ) -> T | None:
        """Return the first answer of `check` that is not None; None after `timeout` seconds or at shutdown.

        `check` runs in a thread, at once and after each change of one of `topics` (`runs`, or `runs:KEY` where
        KEY is a change's key or parent). What it raises is raised here, but for a busy database: then the wait
        goes on. With `disconnect`, the wait also ends when the client goes away; a check that runs just then is
        still awaited, so that its answer is not lost.

        `still_allowed` is awaited before each check, and what it raises ends the wait. Await it once more before
        the answer goes out: the key may have been revoked while the last check ran.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        changed = WakeUpEvent()
        self._waiting[changed] = WantedTopics(topics)
        self._hub.feed.add_watcher()
        try:
            with (
                disconnect.watch_disconnect_during_block(changed.set)
                if disconnect is not None
                else contextlib.nullcontext()
            ):
                while True:
                    changed.clear()  # before the check: what changes while it runs is looked at again
                    poll_result, pause = await self.run_check_and_get_recheck_delay(check, still_allowed)
                    remaining_seconds = deadline - asyncio.get_running_loop().time()
                    if (
                        poll_result is not None
                        or remaining_seconds <= 0
                        or self._closing
                        or (disconnect is not None and disconnect.happened)
                    ):
                        return poll_result
                    await changed.wait(min(remaining_seconds, pause))
        finally:
            self._hub.feed.remove_watcher()
            del self._waiting[changed]

    async def run_check_and_get_recheck_delay(
        self, check: Callable[[], T | None], still_allowed: Callable[[], Awaitable[object]]
    ) -> tuple[T | None, float]:
        """Return what `check` finds, and for how long nobody need look again."""
        try:
            await still_allowed()
            return await self._threads.run_in_thread(check), LOOK_ANYWAY
        except OperationalError as problem:
            log.warning(
                "A waiting request found the database busy and keeps waiting: %s", str(problem).strip()
            )
            return None, LOOK_AGAIN

    def close_and_answer_all_waiters(self) -> None:
        """Answer every waiter now, with what its check finds or None."""
        self._closing = True
        self.recheck_waiters()

    def recheck_waiters(self) -> None:
        """Have every waiter look again, and whether it still may: some key or user has changed."""
        for changed in self._waiting:
            changed.set()

    def wake_waiters_of_changed_topics(self, batch: Sequence[FeedChange]) -> None:
        for changed in self._waiting.wanted_changes_by_subscriber(batch):
            changed.set()
