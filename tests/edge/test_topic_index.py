"""Whoever waits is found by a change's topic and key: what nobody wants costs next to nothing, however many wait."""

from __future__ import annotations

import asyncio
import random
import time
from types import SimpleNamespace
from typing import Any

from coordinator.edge.polling.waits import LongPollWaiters
from coordinator.feed.reader import FeedChange
from coordinator.live.channels import LiveChannel
from coordinator.live.hub import TopicIndex, WantedTopics
from coordinator.live.pages import page_wanted_topics
from coordinator.live.streams import LiveStreams, StreamOpening

EVENTS = [
    FeedChange(number, 0, "events", str(number), f"ses_{number % 50}", "insert") for number in range(1, 5001)
]


def test_each_is_told_exactly_what_it_wants_in_order() -> None:
    chance = random.Random(14)
    names = [*"abc", *(f"{topic}:{key}" for topic in "abc" for key in "xyz")]
    index = TopicIndex[int]()
    topics = {who: WantedTopics(chance.sample(names, chance.randint(1, 4))) for who in range(60)}
    for who, wanted in topics.items():
        index[who] = wanted
    for gone in range(0, 60, 3):
        del index[gone]
        del topics[gone]
    batch = [
        FeedChange(
            number, 0, chance.choice("abcd"), chance.choice("xyzw"), chance.choice(["x", "w", None]), "update"
        )
        for number in range(200)
    ]
    expected = {who: [one for one in batch if wanted.wants_change(one)] for who, wanted in topics.items()}
    assert index.wanted_changes_by_subscriber(batch) == {
        who: changes for who, changes in expected.items() if changes
    }


def test_nothing_is_kept_of_those_who_left() -> None:
    index = TopicIndex[int]()
    for who in range(5):
        index[who] = WantedTopics(["a", "b:x", "b:y", "a:x"])
    for who in range(5):
        del index[who]
    assert (len(index), index._whole_topics, any(index._keyed.values())) == (0, {}, False)


def test_two_thousand_polls_and_a_thousand_streams_cost_a_tenth_of_a_core_at_most() -> None:
    """A second's 5,000 events in batches of 50; in quiet it takes a fifth of that."""
    assert asyncio.run(_cost()) < 0.1


async def _cost() -> float:
    hub: Any = SimpleNamespace(listeners=[], position=0)
    threads: Any = None
    waits, streams = (
        LongPollWaiters(hub, threads),
        LiveStreams(hub, threads, most=9_999, most_per_client=9_999),
    )
    for number in range(2_000):
        keyed = [f"permission_requests:{number}", f"events:ses_x{number}"]
        waits._waiting[asyncio.Event()] = WantedTopics(
            keyed if number % 2 else ["runs", f"runners:r{number}"]
        )
    for number in range(1_000):
        topics = page_wanted_topics(frozenset({f"events:ses_y{number}", "sessions", "permission_requests"}))
        channel = LiveChannel(topics, _nothing)
        streams._temporary_channel_membership(StreamOpening("c", channel, None, _hello)).__enter__()
    began = time.process_time()
    for at in range(0, len(EVENTS), 50):
        for hear in hub.listeners:
            hear(EVENTS[at : at + 50])
    return time.process_time() - began


async def _nothing(_changes: Any) -> list[Any]:
    return []


async def _hello(_upto: int) -> list[Any]:
    return []
