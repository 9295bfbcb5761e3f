"""The gate before a call goes on: while a brake is on, calls wait, and they go on once it is released."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence

from coordinator.edge.polling.waits import LongPollWaiters
from coordinator.lib.threads import EdgeThreads, SharedRead
from coordinator.policy.limits import brakes
from coordinator.policy.limits.brakes import ActiveBrake


class BrakeGate:
    """One a process. It asks the database, not a copy of it, so that nothing passes after a brake's commit."""

    def __init__(self, waits: LongPollWaiters, threads: EdgeThreads) -> None:
        self._waits = waits
        self._threads = threads
        self._in_force = SharedRead(threads, brakes.load_active_brakes)

    async def find_agent_brake(self, agent_id: str, programs: Sequence[str]) -> ActiveBrake | None:
        """Return the brake that may hold a call of which neither program nor host is known for certain; or None."""
        return await self._threads.run_in_thread(brakes.find_brake_on_agent, agent_id, programs)

    async def find_session_host(self, session_id: str) -> str | None:
        """Return the host that a session is known to run on."""
        return await self._threads.run_in_thread(brakes.load_session_host_or_none, session_id)

    async def await_release_or_get_brake(
        self,
        agents: Sequence[str | None],
        host: str | None,
        *,
        wait: float,
        asker: str,
        still_allowed: Callable[[], Awaitable[object]],
    ) -> ActiveBrake | None:
        """Return None once no brake holds the call, at once or within `wait` seconds; else the brake that does.

        `agents` are the names by which its agent is known, `host` where it would run (None: not known), `asker` is
        the caller that takes a waiting slot (ConcurrencyLimit).
        """
        first_brake = brakes.select_first_brake(await self._in_force.get_fresh_value(), agents, host)
        if first_brake is None or wait <= 0:
            return first_brake
        find_brake = functools.partial(brakes.find_brake_on_call, agents, host)
        with self._waits.poll_limit.reserve_slot_during_block(asker):
            released = await self._waits.wait_until(
                lambda: True if find_brake() is None else None,
                topics=["brakes"],
                timeout=wait,
                still_allowed=still_allowed,
            )
        return None if released else await self._threads.run_in_thread(find_brake)
