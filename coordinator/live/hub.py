"""The feed on the event loop: each batch reaches waiters and channels in order, once per process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Generic, TypeVar

from coordinator.feed.reader import ChangeFeed, FeedChange

log = logging.getLogger(__name__)

K = TypeVar("K")
P = TypeVar("P")
Listener = Callable[[Sequence[FeedChange]], None]

# How long the feed waits for a busy event loop before it reads on; meanwhile changes gather into one batch.
LOOP_PATIENCE = 5.0


class FeedHub:
    """Brings the feed's batches to the event loop and calls every listener there, in order.

    `position` is the id up to which listeners have been called. Listeners must not block.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self.feed = feed
        self.position = 0
        self.listeners: list[Listener] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def start_following_feed(self) -> None:
        """Start listening; call on the event loop, after the feed knows its position."""
        self._loop = asyncio.get_running_loop()
        self.position = self.feed.position
        self.feed.listeners.append(self._dispatch_batch_to_event_loop)

    def unsubscribe_from_feed(self) -> None:
        if self._dispatch_batch_to_event_loop in self.feed.listeners:
            self.feed.listeners.remove(self._dispatch_batch_to_event_loop)
        self._loop = None

    def _dispatch_batch_to_event_loop(self, batch: Sequence[FeedChange]) -> None:
        loop, done = self._loop, threading.Event()
        if loop is None:
            return

        def call_listeners_and_release() -> None:
            try:
                self._call_listeners(batch)
            finally:
                done.set()

        loop.call_soon_threadsafe(call_listeners_and_release)
        done.wait(LOOP_PATIENCE)

    def _call_listeners(self, batch: Sequence[FeedChange]) -> None:
        for listener in list(self.listeners):
            try:
                listener(batch)
            except Exception:  # one listener's fault must not silence the others
                log.exception("A listener of the feed failed")
        self.position = batch[-1].id


class WantedTopics:
    """A set of `topic` and `topic:key` that says which changes somebody wants. Each of thousands who wait has one."""

    __slots__ = ("keyed", "whole_topics")

    def __init__(self, names: Iterable[str]) -> None:
        parts = [name.split(":", 1) for name in names]
        self.whole_topics = frozenset(part[0] for part in parts if len(part) == 1)
        self.keyed = frozenset((part[0], part[1]) for part in parts if len(part) == 2)

    def wants_change(self, change: FeedChange) -> bool:
        """Say whether `change` is of one of the topics; a key matches the change's key or its parent."""
        if change.topic in self.whole_topics:
            return True
        if not self.keyed:
            return False
        topic = change.topic
        return (topic, change.key) in self.keyed or (topic, change.parent) in self.keyed

    __call__ = wants_change


class TopicIndex(Generic[K]):
    """Who wants changes of which topics, indexed by a change's topic, key and parent."""

    def __init__(self) -> None:
        self._topics: dict[K, WantedTopics] = {}
        self._whole_topics: dict[str, dict[K, None]] = {}
        self._keyed: dict[str, dict[str | None, dict[K, None]]] = {}

    def __setitem__(self, who: K, topics: WantedTopics) -> None:
        self._topics[who] = topics
        for topic in topics.whole_topics:
            self._whole_topics.setdefault(topic, {})[who] = None
        for topic, key in topics.keyed:
            if topic not in topics.whole_topics:
                self._keyed.setdefault(topic, {}).setdefault(key, {})[who] = None

    def __delitem__(self, who: K) -> None:
        topics = self._topics.pop(who)
        for topic in topics.whole_topics:
            remove_from_topic_index(self._whole_topics, topic, who)
        for topic, key in topics.keyed:
            if topic not in topics.whole_topics:
                remove_from_topic_index(self._keyed[topic], key, who)

    def __contains__(self, who: object) -> bool:
        return who in self._topics

    def __iter__(self) -> Iterator[K]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

    def wanted_changes_by_subscriber(self, batch: Sequence[FeedChange]) -> dict[K, list[FeedChange]]:
        """Return what each wants of a batch, in order; those who want nothing of it are left out."""
        changes_by_subscriber: dict[K, dict[int, FeedChange]] = {}
        by_topic: dict[str, dict[int, FeedChange]] = {}
        for change in batch:
            by_topic.setdefault(change.topic, {})[change.id] = change
            keys = self._keyed.get(change.topic)
            if keys:
                for key in (change.key, change.parent):
                    for subscriber in keys.get(key, ()):
                        changes_by_subscriber.setdefault(subscriber, {})[change.id] = change
        for topic, changes in by_topic.items():
            for subscriber in self._whole_topics.get(topic, ()):
                changes_by_subscriber.setdefault(subscriber, {}).update(changes)
        return {who: sorted(changes.values(), key=_id) for who, changes in changes_by_subscriber.items()}


_id = attrgetter("id")


def remove_from_topic_index(index: dict[P, dict[K, None]], topic: P, who: K) -> None:
    """Remove `who` from an index entry, and the entry where nobody is left."""
    del index[topic][who]
    if not index[topic]:
        del index[topic]
