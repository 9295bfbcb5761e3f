"""The stream of messages that a server sends unasked, held open by its client."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from coordinator.client import sse
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.list_changes import HERE
from coordinator.edge.gateway.listings import AgentToolListings
from coordinator.edge.gateway.server_requests import ServerRequestGate, ServerRequestStream
from coordinator.edge.gateway.upstream_sessions import UpstreamSessions
from coordinator.edge.gateway.upstreams import (
    MOST_STREAM,
    UpstreamClient,
    UpstreamSessionForgotten,
    iterate_upstream_sse_events,
)
from coordinator.mcp.gateway import answers, listing
from coordinator.mcp.protocol.http_client import UpstreamAnswer, UpstreamFailed
from coordinator.mcp.protocol.messages import UNREACHABLE

log = logging.getLogger(__name__)

REFUSES_WITHIN = 0.5  # seconds in which a server says that it has no such stream


class ServerStreamRelay:
    """One a process."""

    def __init__(
        self,
        upstreams: UpstreamClient,
        links: UpstreamSessions,
        listings: AgentToolListings,
        server_requests: ServerRequestGate,
    ) -> None:
        self._server_requests = server_requests
        self._upstreams = upstreams
        self._links = links
        self._listings = listings

    async def relay_server_stream(self, exchange: Exchange) -> None:
        """Forward the server's messages until the client leaves or its key becomes invalid."""
        passing = asyncio.ensure_future(self.open_and_relay_server_stream(exchange))
        with exchange.disconnect.watch_disconnect_during_block(passing.cancel):
            if exchange.disconnect.happened:
                passing.cancel()
            try:
                await passing
            except asyncio.CancelledError:
                if not exchange.disconnect.happened:
                    raise
        await exchange.line.end_event_stream()

    async def open_and_relay_server_stream(self, exchange: Exchange) -> None:
        try:
            answer = await self.request_server_stream(exchange)
        except UpstreamSessionForgotten:
            over = await self._links.end_session_and_build_lost_error(exchange)
            if exchange.line.is_stream:
                return
            raise over from None
        except UpstreamFailed as problem:
            failure_text = f"The MCP server {exchange.server.name} {problem}."
            await exchange.line.send_answer(
                answers.encode_error_response(None, UNREACHABLE, failure_text), 502
            )
            return
        try:
            if answer.status != 200 or answer.media_type != "text/event-stream":
                await exchange.line.send_status_without_body(answer.status if answer.status >= 400 else 405)
                return
            await self.open_client_stream(exchange)
            with contextlib.suppress(UpstreamFailed):
                await self.relay_server_events(exchange, answer)
        finally:
            answer.close()

    async def request_server_stream(self, exchange: Exchange) -> UpstreamAnswer:
        """Request the server's stream. Many servers send no headers before the first message; ours is open by then."""
        link = exchange.client.links.get(exchange.server.name) if exchange.client else None
        session = link.upstream_session if link else None
        asking = asyncio.ensure_future(
            self._upstreams.send_client_message(exchange, b"", session=session, method="GET")
        )
        try:
            done, _ = await asyncio.wait({asking}, timeout=REFUSES_WITHIN)
            if not done:
                await self.open_client_stream(exchange)
            return await asking
        finally:
            asking.cancel()

    async def open_client_stream(self, exchange: Exchange) -> None:
        if not exchange.line.is_stream:
            await exchange.line.open_event_stream()
            await exchange.line.send_event(HERE)  # or the headers wait for the server's first message

    async def relay_server_events(self, exchange: Exchange, answer: UpstreamAnswer) -> None:
        """Forward a server's unasked messages. A tool list that was requested on another stream is filtered, too."""
        async with self._server_requests.intercept_server_requests_during_block(
            exchange, exchange.line, is_servers_own=True
        ) as requests:
            await self.relay_allowed_server_events(exchange, answer, requests)

    async def relay_allowed_server_events(
        self, exchange: Exchange, answer: UpstreamAnswer, requests: ServerRequestStream
    ) -> None:
        async for event in iterate_upstream_sse_events(answer, MOST_STREAM):
            data = sse.extract_event_data_or_empty(event).replace(b"\n", b" ")
            if data and await requests.intercept_server_message(data):
                continue
            if not data or not listing.is_possible_tools_list_response(data):
                await exchange.line.send_event(event)
                continue
            try:
                await exchange.line.send_event(
                    sse.replace_event_data(
                        event, await self._listings.store_and_filter_listing_answer(exchange, data)
                    )
                )
            except UpstreamFailed as problem:
                log.warning("A list of tools was held back: %s %s", exchange.server.name, problem)
