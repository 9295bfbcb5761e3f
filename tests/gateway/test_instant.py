"""What may have changed is asked for after each call came, though calls that come together share an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from coordinator.edge.gateway import instant
from coordinator.edge.gateway.instant import Instant
from coordinator.policy.brakes import Braked

AGENT = ("agent.one",)
BRAKE = Braked(1, "all", "", "", "user:ada")


class Slow:
    """Threads in which a look takes until it is let go on, and reads what stands there when it begins."""

    def __init__(self) -> None:
        self.standing: list[tuple[bool, bool]] = []
        self.begun = 0
        self.waiting: list[asyncio.Future[None]] = []

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        if work is not instant._look:
            return BRAKE
        found = self.standing[self.begun]
        self.begun += 1
        self.waiting.append(asyncio.get_running_loop().create_future())
        await self.waiting[-1]
        return found


class Hub:
    position = 7


def played(play: Callable[[Instant, Slow], Coroutine[Any, Any, None]], *standing: tuple[bool, bool]) -> Slow:
    """Play with a look whose answers are these, one after the other."""

    async def run() -> Slow:
        slow = Slow()
        slow.standing = list(standing)
        async with asyncio.timeout(10):
            await play(Instant(cast(Any, Hub()), cast(Any, slow)), slow)
        return slow

    return asyncio.run(run())


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_call_is_never_answered_by_a_look_from_before_it() -> None:
    async def play(look: Instant, slow: Slow) -> None:
        first = asyncio.ensure_future(look.look(AGENT))
        await settled()
        later = [asyncio.ensure_future(look.look(AGENT)) for _ in range(20)]  # a rule was edited just before
        await settled()
        slow.waiting[0].set_result(None)
        await settled()
        assert await first == (True, None)
        assert not any(one.done() for one in later)
        slow.waiting[1].set_result(None)
        assert await asyncio.gather(*later) == [(False, BRAKE)] * 20

    assert played(play, (True, False), (False, True)).begun == 2


def test_a_look_that_fails_fails_those_who_wait_for_it_alone() -> None:
    async def play(look: Instant, slow: Slow) -> None:
        calls = [asyncio.ensure_future(look.look(AGENT)) for _ in range(2)]
        await settled()
        gone = asyncio.ensure_future(look.look(AGENT))
        after = asyncio.ensure_future(look.look(AGENT))
        await settled()
        gone.cancel()
        slow.waiting[0].set_exception(OSError("no database"))
        for call in calls:
            with pytest.raises(OSError, match="no database"):
                await call
        await settled()
        slow.waiting[1].set_result(None)
        assert await after == (True, None)

    played(play, (True, False), (True, False))
