"""What a server tells by itself, on a stream that its client holds open."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.listings import Listings
from coordinator.edge.gateway.upstreams import Upstreams, events_of
from coordinator.gateway import answers, listing, sse
from coordinator.gateway.http_client import Answer, UpstreamFailed
from coordinator.gateway.messages import UNREACHABLE

log = logging.getLogger(__name__)


class Telling:
    """One a process."""

    def __init__(self, upstreams: Upstreams, listings: Listings) -> None:
        self._upstreams = upstreams
        self._listings = listings

    async def stream(self, x: Exchange) -> None:
        link = x.client.links.get(x.server.name) if x.client else None
        try:
            answer = await self._upstreams.send(
                x, b"", session=link.upstream_session if link else None, method="GET"
            )
        except UpstreamFailed as problem:
            words = f"The MCP server {x.server.name} {problem}."
            await x.line.answer(answers.error(None, UNREACHABLE, words), 502)
            return
        try:
            if answer.status != 200 or answer.kind != "text/event-stream":
                await x.line.empty(answer.status if answer.status >= 400 else 405)
                return
            await x.line.open()
            passing = asyncio.ensure_future(self._pass_events(x, answer))
            with x.gone.then(passing.cancel):
                if x.gone.happened:
                    passing.cancel()
                with contextlib.suppress(asyncio.CancelledError, UpstreamFailed):
                    await passing
            await x.line.end()
        finally:
            answer.close()

    async def _pass_events(self, x: Exchange, answer: Answer) -> None:
        """Pass on what a server tells by itself. A list of tools in it, asked for on another line, is one here, too."""
        async for event in events_of(answer):
            data = sse.data_of(event).replace(b"\n", b" ")
            if not data or not listing.has_tools(data):
                await x.line.event(event)
                continue
            try:
                await x.line.event(sse.with_data(event, await self._listings.shown(x, data)))
            except UpstreamFailed as problem:
                log.warning("A list of tools was held back: %s %s", x.server.name, problem)
