"""The rows that decide access, cached by agent and server and dropped as soon as the feed reports an edit.

Rows are cached, not verdicts: each call gets a new verdict, so grants end on time without an edit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from django.db import Error as DatabaseError
from django.utils import timezone

from coordinator.errors import Busy
from coordinator.feed.reader import Change
from coordinator.lib.threads import EdgeThreads
from coordinator.lib.turns import Closed, for_all
from coordinator.live.hub import Hub
from coordinator.policy import access
from coordinator.policy.access import Policy

log = logging.getLogger(__name__)

Pair = tuple[str, str]

POLICY_KEPT_FOR = 15.0  # seconds; what the feed may miss (a trigger dropped by hand) is seen within this time
MOST_KEPT = 100_000
# While calls come in the feed looks often; so long after the last one it may fall back to its slow pace.
ALERT_FOR = 10.0


class Policies:
    """The policies of one process. Everything here runs on the event loop; reading is done in a thread.

    Pairs that are missing are read together, one reading at a time: after an edit a thousand callers cost one.
    """

    def __init__(self, hub: Hub, threads: EdgeThreads) -> None:
        self._hub = hub
        self._threads = threads
        self._kept: dict[Pair, tuple[float, Policy]] = {}
        self._pairs: dict[str, set[Pair]] = {}
        self._wanted: dict[Pair, asyncio.Future[Policy]] = {}
        self._dropped: set[str] = set()
        self._reading: asyncio.Task[None] | None = None
        self._calming: asyncio.TimerHandle | None = None
        hub.listeners.append(self.on_changes)

    async def of(self, pairs: Collection[Pair]) -> dict[Pair, Policy]:
        """Return the policy that decides for each agent and server. Raises Busy where it cannot be read."""
        now = asyncio.get_running_loop().time()
        self._stay_alert()
        found, missing = {}, []
        for pair in pairs:
            kept = self._kept.get(pair)
            if kept is not None and kept[0] > now:
                found[pair] = kept[1]
            else:
                missing.append((pair, self._want(pair)))
        for pair, future in missing:
            found[pair] = await asyncio.shield(future)
        return found

    def on_changes(self, batch: Sequence[Change]) -> None:
        for change in batch:
            if change.topic in {"grants", "mcp_tools"} and change.parent is not None:
                self._drop(change.parent)
            elif change.topic == "mcp_servers":
                self._drop(change.key)

    def forget(self, server_id: str) -> None:
        """Read the server's rows anew: this process has just written some of them."""
        self._drop(server_id)

    def _drop(self, server_id: str) -> None:
        self._dropped.add(server_id)
        for pair in self._pairs.pop(server_id, ()):
            self._kept.pop(pair, None)

    def _want(self, pair: Pair) -> asyncio.Future[Policy]:
        future = self._wanted.get(pair)
        if future is None:
            future = self._wanted[pair] = asyncio.get_running_loop().create_future()
            future.add_done_callback(_look_at)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read())
        return future

    async def _read(self) -> None:
        for_all()
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            self._dropped = set()
            try:
                policy = await self._threads.run(_load, {a for a, _ in wanted}, {s for _, s in wanted})
            except Exception as problem:  # whatever it is, nobody may be left waiting
                if not isinstance(problem, DatabaseError | Closed):
                    log.exception("The grants could not be read")
                for future in wanted.values():
                    future.set_exception(
                        Busy("The grants cannot be read right now. Try again.", retry_after=1)
                    )
                continue
            for pair, future in wanted.items():
                self._keep(pair, policy)
                future.set_result(policy)

    def _keep(self, pair: Pair, policy: Policy) -> None:
        if pair[1] in self._dropped:  # edited while we read: good enough for who asked before, not to be kept
            return
        if len(self._kept) >= MOST_KEPT:
            self._kept, self._pairs = {}, {}
        self._kept[pair] = (asyncio.get_running_loop().time() + POLICY_KEPT_FOR, policy)
        self._pairs.setdefault(pair[1], set()).add(pair)

    def _stay_alert(self) -> None:
        if self._calming is None:
            self._hub.feed.watch()
        else:
            self._calming.cancel()
        self._calming = asyncio.get_running_loop().call_later(ALERT_FOR, self._calm)

    def _calm(self) -> None:
        self._calming = None
        self._hub.feed.unwatch()


def _load(agent_ids: set[str], server_ids: set[str]) -> Policy:
    return access.load(agent_ids, server_ids, timezone.now())


def _look_at(future: asyncio.Future[Policy]) -> None:
    if not future.cancelled():
        future.exception()  # whoever waited for it may be gone
