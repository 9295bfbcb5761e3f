"""A hook whose caller could not be let in is read only as far as a stranger's body is."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from coordinator.edge.hooks.endpoint import HookEndpoint
from coordinator.edge.hooks.guard import GuardedCall
from coordinator.edge.http.bodies import RequestBodies
from coordinator.errors import RequestTooLarge
from coordinator.lib.body_limits import STRANGER

SCOPE: dict[str, Any] = {"type": "http", "client": ("192.0.2.1", 1), "headers": []}


def test_no_more_than_a_strangers_body_is_taken_in() -> None:
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 4096
        return {"type": "http.request", "body": b"x" * 4096, "more_body": True}

    endpoint = HookEndpoint(Mock(), Mock(), Mock(), Mock(), RequestBodies(), gate=Mock(), notes=Mock())
    with pytest.raises(RequestTooLarge):
        asyncio.run(endpoint.read_unauthenticated_hook_into_call(GuardedCall(), SCOPE, receive))
    assert taken <= STRANGER.sent + 4096
