"""Resumption of a call's answer when its stream ended before the response.

A server of a version before 2026-07-28 may end a stream once it has sent an event's id, and so may the network. The
response is requested by a GET with that event's id as Last-Event-ID. Nothing is sent that could run again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from coordinator.client import sse
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.upstreams import (
    UnfinishedStream,
    UpstreamClient,
    UpstreamSessionForgotten,
    relay_events_before_response,
)
from coordinator.mcp.protocol.http_client import UpstreamAnswer, UpstreamFailed

MOST_TRIES = 100  # times that one call's rest is asked for
MOST_FAILURES = 8  # … in vain, one after another: the server cannot be reached, or is not ready
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds; the server may ask for longer ones
PASSES = frozenset({408, 429, 500, 502, 503, 504})  # statuses of what may be over soon


class ResumeRefused(UpstreamFailed):
    """The server does not send the rest, and will not."""


class ResponseResumer:
    """One a process."""

    def __init__(self, upstreams: UpstreamClient) -> None:
        self._upstreams = upstreams

    async def fetch_remaining_response(
        self,
        exchange: Exchange,
        left: UnfinishedStream,
        number: Any,
        line: ResponseStream | None,
        **changes: Any,
    ) -> tuple[bytes, bytes | None]:
        """Return the response of a call whose stream was left open, as `relay_events_before_response` does.

        It ends with the caller's time. Raises the same UnfinishedStream where the client itself asks for it, and
        UpstreamFailed.
        """
        if left.by_server and line is not None and can_client_resume(exchange):
            raise left
        if exchange.client is None:  # since 2026-07-28 no stream goes on
            raise UpstreamFailed(str(left), may_have_run=True)
        pause, failures, failure_reason = FIRST_PAUSE, 0, "still had none"
        for _ in range(MOST_TRIES):
            await asyncio.sleep(max(pause, left.place.retry))
            pause = min(2 * pause, LONGEST_PAUSE)
            exchange.resumed += 1
            try:
                answer = await self.request_stream_after_last_event(exchange, left.place)
            except (
                UpstreamFailed
            ) as problem:  # that it forgot the session says nothing of the call, which was sent
                failures, failure_reason = failures + 1, str(problem)
                if failures == MOST_FAILURES or isinstance(problem, ResumeRefused | UpstreamSessionForgotten):
                    break
                continue
            failures, last_known_id = 0, left.place.last_id
            try:
                return await relay_events_before_response(
                    answer, number, line, position=left.place, **changes
                )
            except UnfinishedStream:
                if left.place.last_id != last_known_id:
                    pause = FIRST_PAUSE
            finally:
                answer.close()
        raise UpstreamFailed(f"{left}, and {failure_reason} when asked for the rest", may_have_run=True)

    async def request_stream_after_last_event(
        self, exchange: Exchange, position: sse.StreamPosition
    ) -> UpstreamAnswer:
        """Ask for what follows. Raises UpstreamFailed."""
        link = exchange.client.links.get(exchange.server.name) if exchange.client else None
        headers = [("Accept", "text/event-stream"), ("Last-Event-ID", position.last_id.decode("latin-1"))]
        if link is not None:
            headers.append(("Mcp-Protocol-Version", link.protocol_version))
        session = link.upstream_session if link else None
        answer = await self._upstreams.send_message_to_server(
            exchange.server, headers, b"", session=session, caller=exchange.agent_id, method="GET"
        )
        if answer.status == 200 and answer.media_type == "text/event-stream":
            return answer
        answer.close()
        kind = UpstreamFailed if answer.status in PASSES else ResumeRefused
        raise kind(f"refused ({answer.status})")


def can_client_resume(exchange: Exchange) -> bool:
    """Say whether the client can get its server's messages on another stream: at the server's own endpoint."""
    return (
        not exchange.disconnect.happened
        and exchange.client is not None
        and exchange.client.endpoint == exchange.server.name
    )
