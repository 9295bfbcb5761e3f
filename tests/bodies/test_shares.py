"""Of bodies on their way the slowest give way, and nobody holds so much that the next one finds no room."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from coordinator.edge.http import bodies as module
from coordinator.edge.http.bodies import RequestBodies
from coordinator.errors import RequestTimedOut, RequestTooLarge, ServiceBusy, SignalboxError
from coordinator.lib.body_limits import BodyLimit

LIMIT = BodyLimit(sent=10_000_000, seconds=5, unpacked=10_000_000, becomes=20_000_000)


class Line:
    """A client's line: gives what was put on it, then nothing until more is put."""

    def __init__(self, *parts: bytes, whole: bool = False) -> None:
        self.parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for number, part in enumerate(parts, 1):
            self.put(part, more=not whole or number < len(parts))

    def put(self, part: bytes, *, more: bool) -> None:
        self.parts.put_nowait({"type": "http.request", "body": part, "more_body": more})

    async def receive(self) -> dict[str, Any]:
        return await self.parts.get()


async def read(
    bodies: RequestBodies, sender: str, line: Line, limit: BodyLimit = LIMIT, **headers: str
) -> Any:
    """Read a body and give back what it held; return it, or what it was refused for."""
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    with bodies.reserve_body_during_block(sender) as held:
        try:
            return await held.read_body(line.receive, named, limit)
        except SignalboxError as refusal:
            return refusal


def run(work: Callable[[RequestBodies], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        bodies = RequestBodies()
        try:
            return await work(bodies)
        finally:
            bodies.close()

    return asyncio.run(main())


async def half_sent(bodies: RequestBodies, sender: str, count: int) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(read(bodies, sender, Line(b"{"))) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def test_a_body_that_does_not_come_whole_in_time_is_let_go() -> None:
    limit = BodyLimit(sent=100, seconds=0.01)
    assert isinstance(run(lambda bodies: read(bodies, "address:a", Line(b"{"), limit)), RequestTimedOut)


def test_the_slowest_of_one_address_give_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ARRIVING_FROM_ADDRESS", 3)
    monkeypatch.setattr(module, "BODY_GRACE_SECONDS", 0.0)

    async def work(bodies: RequestBodies) -> Any:
        others = await half_sent(bodies, "address:b", 2)
        slow = await half_sent(bodies, "address:a", 3)
        await asyncio.sleep(0.001)
        quick = await read(bodies, "address:a", Line(b"{", b"}", whole=True))
        await asyncio.sleep(0.001)
        states = [task.done() for task in (*slow, *others)]
        for task in (*slow, *others):
            task.cancel()
        return quick, states

    assert run(work) == (b"{}", [True, False, False, False, False])


def test_a_body_that_is_still_quick_gives_way_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ARRIVING_FROM_ADDRESS", 3)
    monkeypatch.setattr(module, "BODY_GRACE_SECONDS", 60.0)

    async def work(bodies: RequestBodies) -> Any:
        line = Line(b"{")
        mine = asyncio.create_task(read(bodies, "address:a", line))
        await asyncio.sleep(0)
        rest = await half_sent(bodies, "address:a", 50)
        line.put(b"}", more=False)
        for task in rest:
            task.cancel()
        return await mine

    assert run(work) == b"{}"


def test_in_all_whoever_has_most_on_the_way_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ARRIVING_IN_ALL", 5)

    async def work(bodies: RequestBodies) -> Any:
        many, few = await half_sent(bodies, "key:1", 4), await half_sent(bodies, "key:2", 2)
        await asyncio.sleep(0.001)
        states = [task.done() for task in (*many, *few)]
        for task in (*many, *few):
            task.cancel()
        return states

    assert run(work) == [True, False, False, False, False, False]


def test_one_key_never_holds_what_another_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_ALL", 20_000_000)
    large = b'"' + b"x" * 2_000_000 + b'"'

    async def work(bodies: RequestBodies) -> Any:
        taken = 0
        with ExitStack() as greedy:
            for _ in range(10):
                with suppress(ServiceBusy), ExitStack() as stack:
                    held = stack.enter_context(bodies.reserve_body_during_block("key:1"))
                    await held.read_body(Line(large, whole=True).receive, {}, LIMIT)
                    greedy.push(stack.pop_all())
                    taken += 1
            other = await read(bodies, "key:2", Line(large, whole=True))
        again = await read(bodies, "key:1", Line(large, whole=True))
        return taken, other == large, again == large

    assert run(work) == (2, True, True)  # each takes twice its length in memory, and half of all is a key's


def test_of_many_packed_bodies_at_once_some_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_ALL", 20_000_000)
    packed = gzip.compress(b'"' + b"x" * 2_000_000 + b'"')

    async def work(bodies: RequestBodies) -> Any:
        asked = (read(bodies, "key:1", Line(packed, whole=True), content_encoding="gzip") for _ in range(30))
        return sum(isinstance(one, bytes) for one in await asyncio.gather(*asked))

    assert run(work) > 0


def test_small_bodies_find_room_where_a_large_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_ALL", 1_000_000)

    async def work(bodies: RequestBodies) -> Any:
        with bodies.reserve_body_during_block("key:1") as held:
            held.grow_body_reservation(499_000)
            return [await read(bodies, "key:1", Line(b" " * size, whole=True)) for size in (100_000, 10_000)]

    large, small = run(work)
    assert isinstance(large, ServiceBusy)
    assert small == b" " * 10_000


def test_what_a_body_becomes_counts_not_what_it_is() -> None:
    bomb = b"[" + b"[]," * 500_000 + b"[]]"
    refusal = run(lambda bodies: read(bodies, "key:1", Line(bomb, whole=True)))
    assert isinstance(refusal, RequestTooLarge)
    text = b'"' + bomb + b'"'
    assert run(lambda bodies: read(bodies, "key:1", Line(text, whole=True))) == text


def test_all_is_given_back() -> None:
    async def work(bodies: RequestBodies) -> Any:
        for line in (Line(b"{}", whole=True), Line(b"x" * 11_000_000, whole=True)):
            await read(bodies, "key:1", line)
        return bool(bodies.byte_budget), bodies._arriving, bodies._count

    assert run(work) == (False, {}, 0)
