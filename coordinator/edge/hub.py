"""The feed on the event loop: each batch reaches waiters and channels in order, once per process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from coordinator.feed import Change, Feed

log = logging.getLogger(__name__)

Hearer = Callable[[Sequence[Change]], None]

# How long the feed waits for a busy event loop before it reads on; meanwhile changes gather into one batch.
LOOP_PATIENCE = 5.0


class Hub:
    """Brings the feed's batches to the event loop and calls every hearer there, in order.

    `position` is the id up to which hearers have been told. Hearers must not block.
    """

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.position = 0
        self.hearers: list[Hearer] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start hearing; call on the event loop, after the feed knows its position."""
        self._loop = asyncio.get_running_loop()
        self.position = self.feed.position
        self.feed.listeners.append(self._from_feed)

    def stop(self) -> None:
        """Hear no more."""
        if self._from_feed in self.feed.listeners:
            self.feed.listeners.remove(self._from_feed)
        self._loop = None

    def _from_feed(self, batch: Sequence[Change]) -> None:
        loop, told = self._loop, threading.Event()
        if loop is None:
            return

        def tell() -> None:
            try:
                self._tell(batch)
            finally:
                told.set()

        loop.call_soon_threadsafe(tell)
        told.wait(LOOP_PATIENCE)

    def _tell(self, batch: Sequence[Change]) -> None:
        for hearer in list(self.hearers):
            try:
                hearer(batch)
            except Exception:  # one hearer's fault must not silence the others
                log.exception("A hearer of the feed failed")
        self.position = batch[-1].id


class Topics:
    """A set of `topic` and `topic:key` that says which changes somebody wants."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.whole = frozenset(name for name in self.names if ":" not in name)
        self.keyed = frozenset(tuple(name.split(":", 1)) for name in self.names if ":" in name)

    def want(self, change: Change) -> bool:
        """Say whether `change` is of one of the topics; a key matches the change's key or its parent."""
        if change.topic in self.whole:
            return True
        if not self.keyed:
            return False
        topic = change.topic
        return (topic, change.key) in self.keyed or (topic, change.parent) in self.keyed
