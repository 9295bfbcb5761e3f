"""The check, for each call, that this process has received all changes from the feed, and whether a brake is on.

Rules, grants and keys are cached in memory and follow the feed with a short delay. One small query finds whether the
feed has delivered everything so far and whether a brake is on. Calls that arrive while a query runs share the next
one: the answer to a call always comes from a query that began after the call arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from django.db import connection

from coordinator.edge.http import auth
from coordinator.lib.fair_queue import clear_current_caller
from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import FeedHub
from coordinator.policy.limits import brakes
from coordinator.policy.limits.brakes import ActiveBrake

TOPICS = ("tool_rules", "mcp_servers", "grants", "mcp_tools", "mcp_upstreams", "budgets", *auth.TOPICS)
FIND_CHANGES_SQL = f"SELECT 1 FROM changes WHERE id > %s AND topic IN ({', '.join(['%s'] * len(TOPICS))})"  # noqa: S608
FRESHNESS_SQL = f"SELECT EXISTS ({FIND_CHANGES_SQL}), EXISTS (SELECT 1 FROM brakes WHERE released_at IS NULL)"  # noqa: S608
FreshnessResult = tuple[bool, bool]  # whether all edits are known here, and whether any brake is on


class FreshnessCheck:
    """One a process."""

    def __init__(self, hub: FeedHub, threads: EdgeThreads) -> None:
        self._hub = hub
        self._threads = threads
        self._next: asyncio.Future[FreshnessResult] | None = None  # of the check that has not begun
        self._checking: asyncio.Task[None] | None = None

    async def get_policy_freshness_and_brake(self, agents: Sequence[str]) -> tuple[bool, ActiveBrake | None]:
        """Return whether this process knows of every edit of policy and keys, and the brake that is on for the agent.

        `agents` are its id and then the programs that it may be.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._next.add_done_callback(ignore_future_exception)  # read here: who asked may be gone by then
        answer = self._next
        if self._checking is None or self._checking.done():
            self._checking = asyncio.ensure_future(self.run_pending_freshness_checks())
        is_policy_current, is_braked = await asyncio.shield(answer)
        if not is_braked:
            return is_policy_current, None
        return is_policy_current, await self._threads.run_in_thread(
            brakes.find_brake_on_agent, agents[0], agents[1:]
        )

    async def run_pending_freshness_checks(self) -> None:
        clear_current_caller()
        while (answer := self._next) is not None:
            self._next = None  # callers from here on are answered by the next query
            try:
                answer.set_result(
                    await self._threads.run_in_thread(query_freshness_and_brake_flags, self._hub.position)
                )
            except Exception as problem:
                answer.set_exception(problem)
            except BaseException:
                answer.cancel()
                raise


def ignore_future_exception(answer: asyncio.Future[FreshnessResult]) -> None:
    if not answer.cancelled():
        answer.exception()


def query_freshness_and_brake_flags(position: int) -> FreshnessResult:
    with connection.cursor() as cursor:
        cursor.execute(FRESHNESS_SQL, [position, *TOPICS])
        has_changes, is_braked = cursor.fetchone()
    return not has_changes, bool(is_braked)
