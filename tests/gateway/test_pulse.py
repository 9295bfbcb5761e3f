"""Who waits is told so soon, also where others have waited for a while."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.edge.gateway import keep_alive as pulse
from coordinator.edge.gateway.keep_alive import ClientKeepAlive


class Line:
    is_stream = True

    def __init__(self) -> None:
        self.told = asyncio.Event()

    async def send_event_ignoring_disconnect(self, raw: bytes) -> None:
        assert b"waits" in raw
        self.told.set()


def test_who_comes_while_the_clock_runs_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "EVERY", 3_600.0)

    async def wait_one_after_the_other() -> None:
        beat = ClientKeepAlive()
        for _ in range(2):
            x: Any = SimpleNamespace(line=Line(), message=SimpleNamespace(progress_token=None))
            with beat.send_keep_alives_during_block(cast(Any, x), "It waits"):
                async with asyncio.timeout(5):
                    await x.line.told.wait()

    asyncio.run(wait_one_after_the_other())
