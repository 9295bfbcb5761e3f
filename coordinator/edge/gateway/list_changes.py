"""`GET /mcp`: notifications for clients of all servers, or of a collection, when their visible tools change.

Grants, rules, servers and definitions change what an agent may see. The feed reports each change, and a notification
is sent where the list differs. Messages that single servers send unasked are received at their own endpoints.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from django.db import DatabaseError
from django.utils import timezone

from coordinator.client import sse
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.freshness import TOPICS
from coordinator.feed.reader import FeedChange
from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import FeedHub
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway import visibility as reach
from coordinator.mcp.gateway.policy import GatewayCaller

log = logging.getLogger(__name__)

ALIVE_EVERY = 15.0  # seconds of silence after which a stream says that it is there
SETTLES = 0.2  # seconds for which more edits are waited for: people save several at once
MAX_CACHED_DIGESTS = 2_000
HERE = b": here\n\n"
ListReader = tuple[GatewayCaller, str | None]  # who lists tools, and at which collection
CHANGED = sse.build_sse_message_event(answers.encode_notification("notifications/tools/list_changed", {}))


class ToolListUpdates:
    """Who listens in this process, and what each agent could see when that was looked at last."""

    def __init__(self, hub: FeedHub, threads: EdgeThreads) -> None:
        self._threads = threads
        self._edits = 0
        self._listening: set[asyncio.Event] = set()
        self._seen_digests: dict[ListReader, tuple[int, asyncio.Future[str]]] = {}
        hub.listeners.append(self.wake_streams_on_policy_change)

    async def serve_tool_list_change_stream(self, exchange: Exchange) -> None:
        """Notify a client until it leaves: of every change after the stream's first line."""
        reader: ListReader = exchange.caller, exchange.collection.name if exchange.collection else None
        changed = asyncio.Event()
        self._listening.add(changed)
        try:
            visible_digest = await self.visible_tools_digest(reader)
            await exchange.line.open_event_stream()
            await exchange.line.send_event(HERE)
            with exchange.disconnect.watch_disconnect_during_block(changed.set):
                await self.send_tool_list_changes(exchange, reader, changed, visible_digest)
        finally:
            self._listening.discard(changed)
        await exchange.line.end_event_stream()

    async def send_tool_list_changes(
        self, exchange: Exchange, reader: ListReader, changed: asyncio.Event, visible_digest: str | None
    ) -> None:
        while not exchange.disconnect.happened:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ALIVE_EVERY):
                    await changed.wait()
            if exchange.disconnect.happened:
                return
            if changed.is_set():
                await asyncio.sleep(SETTLES)
                changed.clear()
            else:
                await exchange.line.send_event(HERE)
                self._seen_digests.pop(
                    reader, None
                )  # a grant may have ended; the feed reports no change then
            now = await self.visible_tools_digest(reader)
            if now not in (visible_digest, None):
                visible_digest = now
                await exchange.line.send_event(CHANGED)

    async def visible_tools_digest(self, reader: ListReader) -> str | None:
        """Return what the agent may see, as a digest: looked up once for all of its clients. None: not known now."""
        caller, collection_name = reader
        cached_digest = self._seen_digests.get(reader)
        if (
            cached_digest is None
            or cached_digest[0] != self._edits
            or (cached_digest[1].done() and cached_digest[1].exception() is not None)
        ):
            if len(self._seen_digests) >= MAX_CACHED_DIGESTS:
                self._seen_digests.clear()
            looking = asyncio.ensure_future(
                self._threads.run_in_thread(reach.hash_visible_tools, caller, timezone.now(), collection_name)
            )
            cached_digest = self._seen_digests[reader] = self._edits, looking
        try:
            return await asyncio.shield(cached_digest[1])
        except DatabaseError as problem:
            log.warning("What %s may see cannot be read just now: %s", caller.agent_id, str(problem).strip())
            return None

    def wake_streams_on_policy_change(self, batch: Sequence[FeedChange]) -> None:
        if any(change.topic in TOPICS for change in batch):
            self._edits += 1
            for changed in self._listening:
                changed.set()
