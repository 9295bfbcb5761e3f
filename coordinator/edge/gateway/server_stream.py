"""What a server tells by itself, on a stream that its client holds open."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.links import Links
from coordinator.edge.gateway.listings import Listings
from coordinator.edge.gateway.news import HERE
from coordinator.edge.gateway.upstreams import MOST_STREAM, Forgotten, Upstreams, events_of
from coordinator.gateway import answers, listing, sse
from coordinator.gateway.http_client import UpstreamAnswer, UpstreamFailed
from coordinator.gateway.messages import UNREACHABLE

log = logging.getLogger(__name__)

REFUSES_WITHIN = 0.5  # seconds in which a server says that it has no such stream


class Telling:
    """One a process."""

    def __init__(self, upstreams: Upstreams, links: Links, listings: Listings) -> None:
        self._upstreams = upstreams
        self._links = links
        self._listings = listings

    async def stream(self, x: Exchange) -> None:
        """Pass on what the server tells until the client leaves, or may not stay."""
        passing = asyncio.ensure_future(self._pass(x))
        with x.gone.then(passing.cancel):
            if x.gone.happened:
                passing.cancel()
            try:
                await passing
            except asyncio.CancelledError:
                if not x.gone.happened:
                    raise
        await x.line.end()

    async def _pass(self, x: Exchange) -> None:
        try:
            answer = await self._answer(x)
        except Forgotten:
            over = await self._links.over(x)
            if x.line.is_stream:
                return
            raise over from None
        except UpstreamFailed as problem:
            words = f"The MCP server {x.server.name} {problem}."
            await x.line.answer(answers.error(None, UNREACHABLE, words), 502)
            return
        try:
            if answer.status != 200 or answer.kind != "text/event-stream":
                await x.line.empty(answer.status if answer.status >= 400 else 405)
                return
            await self._open(x)
            with contextlib.suppress(UpstreamFailed):
                await self._pass_events(x, answer)
        finally:
            answer.close()

    async def _answer(self, x: Exchange) -> UpstreamAnswer:
        """Ask for the server's stream. Many send nothing of it before they tell something: ours is open by then."""
        link = x.client.links.get(x.server.name) if x.client else None
        session = link.upstream_session if link else None
        asking = asyncio.ensure_future(self._upstreams.send(x, b"", session=session, method="GET"))
        try:
            done, _ = await asyncio.wait({asking}, timeout=REFUSES_WITHIN)
            if not done:
                await self._open(x)
            return await asking
        finally:
            asking.cancel()

    async def _open(self, x: Exchange) -> None:
        if not x.line.is_stream:
            await x.line.open()
            await x.line.event(HERE)  # or the headers wait for what the server tells first

    async def _pass_events(self, x: Exchange, answer: UpstreamAnswer) -> None:
        """Pass on what a server tells by itself. A list of tools in it, asked for on another line, is one here, too."""
        async for event in events_of(answer, MOST_STREAM):
            data = sse.data_of(event).replace(b"\n", b" ")
            if not data or not listing.has_tools(data):
                await x.line.event(event)
                continue
            try:
                await x.line.event(sse.with_data(event, await self._listings.shown(x, data)))
            except UpstreamFailed as problem:
                log.warning("A list of tools was held back: %s %s", x.server.name, problem)
