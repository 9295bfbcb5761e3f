"""How the edge reads the rows that decide access (edge.policies)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.edge.policy import policy_cache as policies
from coordinator.errors import ServiceBusy
from coordinator.lib.threads import EdgeThreads
from tests.patience import PATIENCE


def test_whatever_goes_wrong_as_they_are_read_nobody_is_left_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(policies, "load_access_policy_from_database", fail)
    feed = SimpleNamespace(add_watcher=lambda: None, remove_watcher=lambda: None)

    async def ask() -> None:
        threads = EdgeThreads(1)
        reader = policies.PolicyCache(SimpleNamespace(feed=feed, listeners=[]), threads)  # type: ignore[arg-type]
        try:
            for _ in range(2):
                with pytest.raises(ServiceBusy):
                    await asyncio.wait_for(reader.load_policies([("agent.a", "files")]), PATIENCE)
        finally:
            threads.shut_down_threads()

    asyncio.run(ask())
