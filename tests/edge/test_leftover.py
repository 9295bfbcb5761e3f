"""What is left of a body is read within its time, whatever the server's `receive` does with the end of that time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from coordinator.edge.http import unread_body as leftover
from coordinator.edge.http.unread_body import UnreadRequestBody

SCOPE: dict[str, Any] = {"headers": [(b"transfer-encoding", b"chunked")]}


def test_time_is_over_though_a_piece_comes_together_with_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftover, "READ_SECONDS", 0.01)
    pieces = 0

    async def receive() -> dict[str, Any]:
        nonlocal pieces
        pieces += 1
        # As Python 3.11's wait_for does, where both come at once.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60 if pieces == 1 else 0)
        return {"type": "http.request", "body": b"x", "more_body": pieces < 10}

    async def send(_message: dict[str, Any]) -> None:
        raise AssertionError("nothing is answered here")

    asyncio.run(UnreadRequestBody(SCOPE, receive, send).discard_remaining_body())
    assert pieces == 1
