"""The upstream servers as this process knows them, read anew as soon as the feed tells of a change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coordinator.feed.reader import Change
from coordinator.gateway import servers
from coordinator.gateway.servers import Server
from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import Hub

SERVER_KEPT_FOR = 15.0  # seconds; what the feed may have missed is seen within this time
MOST_KEPT = 2_000
OWN = frozenset({"mcp_servers", "mcp_upstreams"})  # topics whose key is the server


class Registry:
    """Servers by name. Used on the event loop; reading is done in a thread, once for all who wait."""

    def __init__(self, hub: Hub, threads: EdgeThreads) -> None:
        self._threads = threads
        self._kept: dict[str, tuple[float, asyncio.Future[Server | None]]] = {}
        hub.listeners.append(self._on_changes)

    async def get(self, name: str) -> Server | None:
        """Return the server; None where none of this name is registered."""
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(name)
        if kept is None or kept[0] < now or _failed(kept[1]):
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            kept = now + SERVER_KEPT_FOR, asyncio.ensure_future(self._threads.run(servers.load, name))
            kept[1].add_done_callback(_failed)  # reads the exception: who asked may be gone by then
            self._kept[name] = kept
        return await asyncio.shield(kept[1])

    def forget(self, name: str) -> None:
        self._kept.pop(name, None)

    def _on_changes(self, batch: Sequence[Change]) -> None:
        for change in batch:
            if change.topic == "mcp_servers" and change.op != "update":
                self._kept.clear()  # another server's name may now stand for some of this one's tools
            elif change.topic in OWN:
                self.forget(change.key)
            elif change.topic == "mcp_tools" and change.parent is not None:
                self.forget(change.parent)


def _failed(reading: asyncio.Future[Server | None]) -> bool:
    return reading.done() and (reading.cancelled() or reading.exception() is not None)
