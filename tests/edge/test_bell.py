"""Who waits is woken by the bell or by time, and never sleeps through a ring."""

from __future__ import annotations

import asyncio

from coordinator.edge.polling.waits import WakeUpEvent

LONG = 3600.0


def test_it_wakes_whoever_sleeps_and_lets_nobody_fall_asleep_who_came_late() -> None:
    async def play() -> None:
        bell = WakeUpEvent()
        sleeping = asyncio.ensure_future(bell.wait(LONG))
        await asyncio.sleep(0)
        assert not sleeping.done()
        bell.set()
        await sleeping
        await bell.wait(LONG)  # it has rung, and nobody has cleared it
        bell.clear()
        await bell.wait(0.001)  # time wakes, too

    asyncio.run(asyncio.wait_for(play(), 10))
