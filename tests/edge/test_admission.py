"""A key that ends while the last look runs: what was found is not told, and a claimed run goes back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import InterfaceError

from coordinator.actions.agents import runners
from coordinator.actions.people import keys
from coordinator.edge.app import ROUTES
from coordinator.edge.http import auth as auth_module
from coordinator.edge.http.auth import Authenticator
from coordinator.edge.http.messages import OPERATION
from coordinator.edge.polling.endpoints import LongPollEndpoint
from coordinator.edge.polling.waits import LongPollWaiters
from coordinator.errors import Unauthorized
from coordinator.identity.keys import KeyIdentity
from coordinator.lib.fair_queue import CALLER, ThreadsClosed

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WORK = {"run": {"run_id": "run_1"}}
SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "GET",
    "path": "/runner/runs",
    "query_string": b"runner_id=lnch_1",
    "headers": [(b"authorization", b"Bearer sbx_x")],
    "client": ("127.0.0.1", 1),
    OPERATION: ROUTES["GET", "/runner/runs"],
}


class Inline:
    """Threads that are none."""

    async def run_in_thread(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A door with a waiting run behind it: `meanwhile` happens while it is claimed, `returned` is what went back."""
    world = SimpleNamespace(now=NOW, revoked=False, meanwhile=lambda: None, returned=[], sent=[])

    def authenticate(*_args: Any, **_named: Any) -> KeyIdentity:
        world.looks += 1
        if world.revoked:
            raise Unauthorized("Revoked.")
        return KeyIdentity(1, "one", frozenset({"runner"}), expires_at=NOW + timedelta(minutes=1))

    def poll(*_args: Any, **_named: Any) -> dict[str, Any]:
        world.meanwhile()
        return WORK

    world.looks = 0
    monkeypatch.setattr(keys, "authenticate_api_key", authenticate)
    monkeypatch.setattr(auth_module, "timezone", SimpleNamespace(now=lambda: world.now))
    monkeypatch.setattr(runners, "claim_next_runner_work", poll)
    monkeypatch.setattr(
        runners, "requeue_undelivered_poll_answer", lambda *args: world.returned.append(args[:2])
    )
    return world


def poll_once(world: SimpleNamespace) -> None:
    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        world.sent.append(message)

    async def ask() -> None:
        threads: Any = Inline()
        feed = SimpleNamespace(add_watcher=lambda: None, remove_watcher=lambda: None)
        hub: Any = SimpleNamespace(listeners=[], feed=feed)
        world.auth = Authenticator(threads)
        await LongPollEndpoint(world.auth, LongPollWaiters(hub, threads), threads).poll_runner_work(
            SCOPE, receive, send
        )

    asyncio.run(ask())


@pytest.mark.parametrize("problem", [ThreadsClosed(), InterfaceError("the connection is closed")])
def test_a_caller_who_cannot_be_looked_up_stays_an_address(problem: Exception) -> None:
    class Gone:
        """Threads that were let go, as a server does that stops; or without their database."""

        async def run_in_thread(self, *_args: Any, **_named: Any) -> Any:
            raise problem

    async def note() -> str:
        CALLER.set("address:127.0.0.1")
        threads: Any = Gone()
        await Authenticator(threads).set_caller_context_variable(SCOPE)
        return CALLER.get()

    assert asyncio.run(note()) == "address:127.0.0.1"


def test_a_run_that_is_claimed_as_the_key_is_revoked_goes_back_untold(world: SimpleNamespace) -> None:
    def revoke() -> None:
        world.revoked = True
        world.auth.clear_caches_on_identity_change([SimpleNamespace(topic="api_keys")])

    world.meanwhile = revoke
    with pytest.raises(Unauthorized):
        poll_once(world)
    assert (world.returned, world.sent) == ([("lnch_1", WORK)], [])


def test_a_run_that_is_claimed_as_the_key_expires_goes_back_untold(world: SimpleNamespace) -> None:
    world.meanwhile = lambda: setattr(world, "now", NOW + timedelta(minutes=2))
    with pytest.raises(Unauthorized, match="expired"):
        poll_once(world)
    assert (world.returned, world.sent) == ([("lnch_1", WORK)], [])


def test_while_no_key_changes_nobody_looks_twice(world: SimpleNamespace) -> None:
    poll_once(world)
    assert (world.looks, world.returned, world.sent[0]["status"]) == (1, [], 200)
