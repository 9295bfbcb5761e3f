"""Whoever is refused hears whether a server may have heard the call: only then is it not to be sent again by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.db import OperationalError

from coordinator.edge.gateway.calls import Calls
from coordinator.edge.gateway.running import Runner
from coordinator.errors import Busy, SignalboxError

LOCKED, BUSY = OperationalError("database is locked"), Busy("Too many wait.")


def calls(**parts: Any) -> Calls:
    names = "rulings policies listings holding records upstreams notes instant threads"
    return Calls(**{name: cast(Any, parts.get(name)) for name in names.split()})


def exchange() -> Any:
    params = {"name": "echo", "arguments": {}}
    message = SimpleNamespace(params=params, id=1, raw=b"{}")
    server = SimpleNamespace(name="example", tools={"echo": SimpleNamespace(is_gone=False)})
    return SimpleNamespace(message=message, server=server, client=None, is_sent=False)


def fails(problem: Exception) -> Callable[..., Awaitable[Any]]:
    async def fail(*_given: Any, **_options: Any) -> Any:
        raise problem

    return fail


def refusal(work: Awaitable[None]) -> SignalboxError:
    async def refused() -> SignalboxError:
        with pytest.raises(SignalboxError) as found:
            await work
        return found.value

    return asyncio.run(refused())


@pytest.mark.parametrize("problem", [LOCKED, BUSY])
def test_a_call_that_fails_before_it_is_sent_may_be_sent_again(problem: Exception) -> None:
    records = SimpleNamespace(session_of=fails(problem))
    found = refusal(calls(records=records).call(exchange()))
    assert (found.status, found.not_sent) == (503, True)


@pytest.mark.parametrize("problem", [LOCKED, BUSY])
def test_a_call_that_fails_when_it_may_have_been_heard_is_not_said_to_be_unsent(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = calls(upstreams=SimpleNamespace(send_call=fails(problem)))

    async def passed(x: Any) -> None:
        await found._passed(x, cast(Any, SimpleNamespace(upstream=0.0)))

    monkeypatch.setattr(found, "_answer", passed)
    assert not refusal(found.call(exchange())).not_sent


def test_an_approved_call_counts_as_heard_once_it_is_given_to_who_sends_it() -> None:
    x = exchange()
    x.gone = SimpleNamespace(happened=True, then=lambda _: contextlib.nullcontext())
    x.line = SimpleNamespace(is_over=False)
    none = cast(Any, None)

    async def run() -> None:
        await Runner(none, none, none, none, gate=none, notes=none)._detached(x, asyncio.sleep(0))

    asyncio.run(run())
    assert x.is_sent
