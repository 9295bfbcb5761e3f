"""The rows that decide access, cached by agent and server and dropped as soon as the feed reports an edit.

Rows are cached, not verdicts: each call gets a new verdict, so grants end on time without an edit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from django.db import Error as DatabaseError
from django.utils import timezone

from coordinator.errors import ServiceBusy
from coordinator.feed.reader import FeedChange
from coordinator.lib.fair_queue import ThreadsClosed, clear_current_caller
from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import FeedHub
from coordinator.policy.grants import access
from coordinator.policy.grants.access import AccessPolicy

log = logging.getLogger(__name__)

Pair = tuple[str, str]

POLICY_CACHE_SECONDS = 15.0  # what the feed may miss (a trigger dropped by hand) is seen within this time
MAX_CACHED_POLICIES = 100_000
# While calls come in the feed looks often; so long after the last one it may fall back to its slow pace.
ALERT_FOR = 10.0


class PolicyCache:
    """The policies of one process. Everything here runs on the event loop; reading is done in a thread.

    Pairs that are missing are read together, one reading at a time: after an edit a thousand callers cost one.
    """

    def __init__(self, hub: FeedHub, threads: EdgeThreads) -> None:
        self._hub = hub
        self._threads = threads
        self._cached_policies: dict[Pair, tuple[float, AccessPolicy]] = {}
        self._pairs: dict[str, set[Pair]] = {}
        self._pending_policies: dict[Pair, asyncio.Future[AccessPolicy]] = {}
        self._dropped: set[str] = set()
        self._reading: asyncio.Task[None] | None = None
        self._calming: asyncio.TimerHandle | None = None
        hub.listeners.append(self.drop_cached_policies_on_change)

    async def load_policies(self, pairs: Collection[Pair]) -> dict[Pair, AccessPolicy]:
        """Return the policy that decides for each agent and server. Raises ServiceBusy where it cannot be read."""
        now = asyncio.get_running_loop().time()
        self.extend_feed_watch()
        policies, missing = {}, []
        for pair in pairs:
            cached_policy = self._cached_policies.get(pair)
            if cached_policy is not None and cached_policy[0] > now:
                policies[pair] = cached_policy[1]
            else:
                missing.append((pair, self.get_or_start_policy_load(pair)))
        for pair, future in missing:
            policies[pair] = await asyncio.shield(future)
        return policies

    def drop_cached_policies_on_change(self, batch: Sequence[FeedChange]) -> None:
        for change in batch:
            if change.topic in {"grants", "mcp_tools"} and change.parent is not None:
                self.drop_server_policies(change.parent)
            elif change.topic == "mcp_servers":
                self.drop_server_policies(change.key)

    def invalidate_cached_server_grants(self, server_id: str) -> None:
        """Read the server's rows again: this process has just written some of them."""
        self.drop_server_policies(server_id)

    def drop_server_policies(self, server_id: str) -> None:
        self._dropped.add(server_id)
        for pair in self._pairs.pop(server_id, ()):
            self._cached_policies.pop(pair, None)

    def get_or_start_policy_load(self, pair: Pair) -> asyncio.Future[AccessPolicy]:
        future = self._pending_policies.get(pair)
        if future is None:
            future = self._pending_policies[pair] = asyncio.get_running_loop().create_future()
            future.add_done_callback(consume_future_error)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self.load_and_deliver_requested_policies())
        return future

    async def load_and_deliver_requested_policies(self) -> None:
        clear_current_caller()
        while self._pending_policies:
            wanted_pairs, self._pending_policies = self._pending_policies, {}
            self._dropped = set()
            try:
                policy = await self._threads.run_in_thread(
                    load_access_policy_from_database,
                    {a for a, _ in wanted_pairs},
                    {s for _, s in wanted_pairs},
                )
            except Exception as problem:  # whatever it is, nobody may be left waiting
                if not isinstance(problem, DatabaseError | ThreadsClosed):
                    log.exception("The grants could not be read")
                for future in wanted_pairs.values():
                    future.set_exception(
                        ServiceBusy("The grants cannot be read right now. Try again.", retry_after=1)
                    )
                continue
            for pair, future in wanted_pairs.items():
                self.store_cached_policy(pair, policy)
                future.set_result(policy)

    def store_cached_policy(self, pair: Pair, policy: AccessPolicy) -> None:
        if pair[1] in self._dropped:  # edited while we read: good enough for who asked before, not to be kept
            return
        if len(self._cached_policies) >= MAX_CACHED_POLICIES:
            self._cached_policies, self._pairs = {}, {}
        self._cached_policies[pair] = (asyncio.get_running_loop().time() + POLICY_CACHE_SECONDS, policy)
        self._pairs.setdefault(pair[1], set()).add(pair)

    def extend_feed_watch(self) -> None:
        if self._calming is None:
            self._hub.feed.add_watcher()
        else:
            self._calming.cancel()
        self._calming = asyncio.get_running_loop().call_later(ALERT_FOR, self.stop_watching_feed)

    def stop_watching_feed(self) -> None:
        self._calming = None
        self._hub.feed.remove_watcher()


def load_access_policy_from_database(agent_ids: set[str], server_ids: set[str]) -> AccessPolicy:
    return access.load_policy_for_agents(agent_ids, server_ids, timezone.now())


def consume_future_error(future: asyncio.Future[AccessPolicy]) -> None:
    if not future.cancelled():
        future.exception()  # the caller that waited for it may be gone
