"""This process's cache of upstream servers, read again as soon as the feed reports a change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coordinator.feed.reader import FeedChange
from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import FeedHub
from coordinator.mcp.gateway import servers
from coordinator.mcp.gateway.servers import UpstreamServer

SERVER_CACHE_SECONDS = 15.0  # what the feed may have missed is seen within this time
MAX_CACHED_SERVERS = 2_000
OWN = frozenset({"mcp_servers", "mcp_upstreams"})  # topics whose key is the server


class ServerRegistry:
    """Servers by name. Used on the event loop; reading is done in a thread, once for all who wait."""

    def __init__(self, hub: FeedHub, threads: EdgeThreads) -> None:
        self._threads = threads
        self._cached_servers: dict[str, tuple[float, asyncio.Future[UpstreamServer | None]]] = {}
        hub.listeners.append(self.invalidate_changed_servers)

    async def get_cached_or_load_server(self, name: str) -> UpstreamServer | None:
        """Return the server; None where none of this name is registered."""
        now = asyncio.get_running_loop().time()
        cached_server = self._cached_servers.get(name)
        if cached_server is None or cached_server[0] < now or has_server_load_failed(cached_server[1]):
            if len(self._cached_servers) >= MAX_CACHED_SERVERS:
                self._cached_servers.clear()
            cached_server = (
                now + SERVER_CACHE_SECONDS,
                asyncio.ensure_future(self._threads.run_in_thread(servers.load_upstream_server, name)),
            )
            cached_server[1].add_done_callback(
                has_server_load_failed
            )  # reads the exception: who asked may be gone by then
            self._cached_servers[name] = cached_server
        return await asyncio.shield(cached_server[1])

    def invalidate_cached_server(self, name: str) -> None:
        self._cached_servers.pop(name, None)

    def invalidate_changed_servers(self, batch: Sequence[FeedChange]) -> None:
        for change in batch:
            if change.topic == "mcp_servers" and change.op != "update":
                self._cached_servers.clear()  # another server's name may now match some of this one's tools
            elif change.topic in OWN:
                self.invalidate_cached_server(change.key)
            elif change.topic == "mcp_tools" and change.parent is not None:
                self.invalidate_cached_server(change.parent)


def has_server_load_failed(reading: asyncio.Future[UpstreamServer | None]) -> bool:
    return reading.done() and (reading.cancelled() or reading.exception() is not None)
