from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.feed.reader import FeedChange
from coordinator.live import channels
from coordinator.live.channels import EventFrame, FrameBlob, LiveChannel, StreamSubscriber
from coordinator.live.hub import WantedTopics

WANTED = WantedTopics(["events"])


def change(number: int) -> FeedChange:
    return FeedChange(number, 0, "events", str(number), "s1", "insert")


async def render(changes: Sequence[FeedChange]) -> list[EventFrame]:
    return [EventFrame(one.id, b"%d;" % one.id) for one in changes]


async def taken(member: StreamSubscriber) -> bytes:
    blob = await asyncio.wait_for(member.wait_for_next_blob(), 5)
    return b"".join(blob.chunks) if blob else b"(end)"


def test_members_share_the_same_bytes() -> None:
    async def work() -> tuple[FrameBlob | None, FrameBlob | None]:
        channel = LiveChannel(WANTED, render)
        members = [StreamSubscriber(0), StreamSubscriber(0)]
        channel.members.update(members)
        channel.queue_changes([change(1)])
        return await members[0].wait_for_next_blob(), await members[1].wait_for_next_blob()

    one, other = asyncio.run(work())
    assert one is other
    assert one is not None


def test_a_member_is_not_told_again_what_it_was_told_before() -> None:
    async def work() -> bytes:
        channel = LiveChannel(WANTED, render)
        member = StreamSubscriber(after=2)
        channel.members.add(member)
        channel.queue_changes([change(1), change(2), change(3)])
        return await taken(member)

    assert asyncio.run(work()) == b"3;"


def test_what_comes_while_a_page_rests_goes_together() -> None:
    async def work() -> list[bytes]:
        channel = LiveChannel(WANTED, render, pause=0.05)
        member = StreamSubscriber(0)
        channel.members.add(member)
        channel.queue_changes([change(1)])
        first = await taken(member)
        for number in range(2, 6):
            channel.queue_changes([change(number)])
        return [first, await taken(member)]

    assert asyncio.run(work()) == [b"1;", b"2;3;4;5;"]


def test_a_member_that_does_not_read_is_cut_and_its_neighbours_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "MOST_BLOBS", 3)

    async def read(member: StreamSubscriber, into: list[bytes]) -> None:
        while (data := await taken(member)) != b"(end)":
            into.append(data)

    async def work() -> tuple[bool, list[bytes]]:
        channel = LiveChannel(WANTED, render)
        got: list[bytes] = []
        quick = StreamSubscriber(0)
        reader = asyncio.ensure_future(read(quick, got))
        stuck = asyncio.ensure_future(asyncio.sleep(60))
        slow = StreamSubscriber(0)
        slow.task = stuck
        channel.members.update([quick, slow])
        for number in range(1, 7):
            channel.queue_changes([change(number)])
            while len(got) < number:
                await asyncio.sleep(0.001)
        quick.close()
        await reader
        return stuck.cancelled() and slow not in channel.members, got

    assert asyncio.run(work()) == (True, [b"%d;" % number for number in range(1, 7)])


def test_a_channel_that_cannot_be_rendered_ends_its_streams_and_lives_on() -> None:
    faults = iter([RuntimeError("a bug")])

    async def fail_once(changes: Sequence[FeedChange]) -> list[EventFrame]:
        for fault in faults:
            raise fault
        return await render(changes)

    async def work() -> tuple[bool, bytes]:
        channel = LiveChannel(WANTED, fail_once)
        stuck: asyncio.Task[Any] = asyncio.ensure_future(asyncio.sleep(60))
        first = StreamSubscriber(0)
        first.task = stuck
        channel.members.add(first)
        channel.queue_changes([change(1)])
        with pytest.raises(asyncio.CancelledError):
            await stuck
        channel.members.discard(first)
        second = StreamSubscriber(1)
        channel.members.add(second)
        channel.queue_changes([change(2)])
        return stuck.cancelled(), await taken(second)

    assert asyncio.run(work()) == (True, b"2;")
