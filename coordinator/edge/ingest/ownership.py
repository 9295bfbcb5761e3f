"""The check whether a key may write into a session, with a cache of what was allowed to keep up with events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from coordinator.errors import SignalboxError
from coordinator.identity import ownership
from coordinator.identity.keys import KeyIdentity
from coordinator.lib.threads import EdgeThreads

RIGHT_CACHE_SECONDS = 5.0
MAX_CACHED_RIGHTS = 50_000


class WriteRights:
    """The answers of one process (rules: coordinator.identity.ownership). Refusals are looked up each time."""

    def __init__(self, threads: EdgeThreads) -> None:
        self._threads = threads
        self._until: dict[tuple[KeyIdentity, str], float] = {}

    async def require_write_right(self, caller: KeyIdentity, session_id: str) -> None:
        for refusal in (await self.session_write_refusals_by_id(caller, [session_id])).values():
            raise refusal

    async def session_write_refusals_by_id(
        self, caller: KeyIdentity, session_ids: Iterable[str]
    ) -> dict[str, SignalboxError]:
        """Return, by session, why the key may not write into it."""
        if ownership.can_write_all_sessions(caller):
            return {}
        now = asyncio.get_running_loop().time()
        waiting_session_ids = {
            session_id for session_id in session_ids if self._until.get((caller, session_id), 0.0) < now
        }
        if not waiting_session_ids:
            return {}
        refused = await self._threads.run_in_thread(
            ownership.find_session_write_refusals, caller, waiting_session_ids
        )
        if len(self._until) + len(waiting_session_ids) > MAX_CACHED_RIGHTS:
            self._until.clear()
        self._until.update(
            {(caller, one): now + RIGHT_CACHE_SECONDS for one in waiting_session_ids - refused.keys()}
        )
        return refused
