"""How workers that listen on one socket share its connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from coordinator.edge.http import worker
from coordinator.edge.http.worker import ConnectionAcceptor


async def taken(monkeypatch: pytest.MonkeyPatch, *, has_others: bool) -> list[int]:
    """Have a first worker take of two connections that wait, then a second one; return how many each took."""
    monkeypatch.setattr(worker, "OTHERS_TURN", 1000.0)
    loop, took, all_taken = asyncio.get_running_loop(), [0, 0], asyncio.Event()

    def acceptor(number: int, listening: socket.socket) -> ConnectionAcceptor:
        def protocol() -> asyncio.Protocol:
            took[number] += 1
            if sum(took) == 2:
                all_taken.set()
            return asyncio.Protocol()

        return ConnectionAcceptor(loop, listening, protocol, None, has_others=has_others)  # type: ignore[arg-type]

    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(2):
            stack.enter_context(socket.create_connection(listening.getsockname()))
        first = acceptor(0, listening)
        while not took[0]:
            await asyncio.sleep(0)
        for _ in range(10):  # it would take the next one at once
            await asyncio.sleep(0)
        second = acceptor(1, stack.enter_context(listening.dup()))
        await asyncio.wait_for(all_taken.wait(), 10)
        first.close()
        second.close()
    return took


def test_a_worker_that_took_a_connection_leaves_the_next_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asyncio.run(taken(monkeypatch, has_others=True)) == [1, 1]


def test_a_worker_alone_takes_all_connections_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(taken(monkeypatch, has_others=False)) == [2, 0]
