"""A worker that stops closes idle connections, and none on which a request has arrived."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.glogging import Logger

from coordinator.edge.http import worker as workers

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
ANSWER = b"HTTP/1.1 204 "


async def nothing_more(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer 204."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class Connected:
    """A connection of a worker that serves nothing else: the client's end and the worker's."""

    def __init__(self, worker: workers.Worker, protocol: workers.EdgeProtocol, client: socket.socket) -> None:
        self.worker, self.protocol, self.client = worker, protocol, client

    async def heard(self) -> bytes:
        """Return what the client hears next; nothing where the connection was closed."""
        return await asyncio.wait_for(self.worker.loop.sock_recv(self.client, 1_000), 60)

    async def waits(self) -> None:
        """Return when the worker waits for a request."""
        while not self.protocol._awaiting_request:
            await asyncio.sleep(0)

    async def answered(self) -> None:
        """Ask once and hear the answer."""
        self.client.sendall(REQUEST)
        assert (await self.heard()).startswith(ANSWER)
        await self.waits()


@pytest.fixture
def connected() -> Callable[[Callable[[Connected], Awaitable[None]]], None]:
    """Return what runs a play with one connection, as the worker's own loop would."""

    def run(play: Callable[[Connected], Awaitable[None]]) -> None:
        settings = Config()
        worker = workers.Worker(0, 0, [], None, 30, settings, Logger(settings))
        worker.asgi = nothing_more
        worker._setup_event_loop()

        async def begin() -> None:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            theirs.setblocking(False)
            _, protocol = await worker.loop.connect_accepted_socket(
                lambda: workers.EdgeProtocol(worker), theirs
            )
            connection = Connected(worker, protocol, ours)
            await connection.waits()
            with ours:
                await asyncio.wait_for(play(connection), 60)
                protocol.transport.abort()

        try:
            worker.loop.run_until_complete(begin())
        finally:
            asyncio.set_event_loop(None)
            worker.loop.close()

    return run


def test_an_idle_connection_is_closed(connected: Any) -> None:
    async def play(one: Connected) -> None:
        await one.answered()
        one.protocol.close_if_idle()
        assert await one.heard() == b""

    connected(play)


@pytest.mark.parametrize("before", [0, 1], ids=["first request", "second request"])
def test_a_request_that_was_read_but_not_begun_is_answered(connected: Any, before: int) -> None:
    async def play(one: Connected) -> None:
        for _ in range(before):
            await one.answered()
        one.protocol.data_received(REQUEST)
        one.protocol.close_if_idle()
        assert (await one.heard()).startswith(ANSWER)

    connected(play)


@pytest.mark.parametrize("before", [0, 1], ids=["first request", "second request"])
def test_a_request_that_arrived_but_was_not_read_is_answered(connected: Any, before: int) -> None:
    async def play(one: Connected) -> None:
        for _ in range(before):
            await one.answered()
        one.client.sendall(REQUEST)
        one.protocol.close_if_idle()
        assert (await one.heard()).startswith(ANSWER)

    connected(play)
