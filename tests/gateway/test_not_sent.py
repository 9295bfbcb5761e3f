"""Whoever is refused hears whether a server may have heard the call: only then is it not to be sent again by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.db import OperationalError

from coordinator.edge.gateway.approved_calls import ApprovedCallRunner, CallNotSent
from coordinator.edge.gateway.calls import ToolCallHandler
from coordinator.errors import ServiceBusy, SignalboxError
from coordinator.mcp.protocol.messages import McpMessage
from coordinator.policy.rules.tool_rules import Ruling

LOCKED, BUSY = OperationalError("database is locked"), ServiceBusy("Too many wait.")


def calls(**parts: Any) -> ToolCallHandler:
    names = "rulings policies listings holding records sending notes instant threads"
    return ToolCallHandler(**{name: cast(Any, parts.get(name)) for name in names.split()})


def exchange() -> Any:
    params = {"name": "echo", "arguments": {}}
    message = McpMessage(b"{}", {"method": "tools/call", "id": 1, "params": params})
    server = SimpleNamespace(name="example", tools={"echo": SimpleNamespace(is_gone=False, param_headers=())})
    return SimpleNamespace(message=message, server=server, client=None, line=None, is_sent=False)


def fails(problem: Exception) -> Callable[..., Awaitable[Any]]:
    async def fail(*_given: Any, **_options: Any) -> Any:
        raise problem

    return fail


def gives(value: Any) -> Callable[..., Awaitable[Any]]:
    async def give(*_given: Any, **_options: Any) -> Any:
        return value

    return give


def refusal(work: Awaitable[None]) -> SignalboxError:
    async def refused() -> SignalboxError:
        with pytest.raises(SignalboxError) as found:
            await work
        return found.value

    return asyncio.run(refused())


@pytest.mark.parametrize("problem", [LOCKED, BUSY])
def test_a_call_that_fails_before_it_is_sent_may_be_sent_again(problem: Exception) -> None:
    records = SimpleNamespace(get_or_create_timeline_session_id=fails(problem))
    found = refusal(calls(records=records).handle_tool_call(exchange()))
    assert (found.status, found.not_sent) == (503, True)


@pytest.mark.parametrize("problem", [LOCKED, BUSY])
def test_a_call_that_fails_when_it_may_have_been_heard_is_not_said_to_be_unsent(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = calls(sending=SimpleNamespace(send_call_or_use_cached_result=fails(problem)))

    async def passed(x: Any) -> None:
        await found.forward_call(
            x, cast(Any, SimpleNamespace(record_server_time_during_block=lambda _: contextlib.nullcontext()))
        )

    monkeypatch.setattr(found, "answer_tool_call", passed)
    assert not refusal(found.handle_tool_call(exchange())).not_sent


def test_an_approved_call_counts_as_heard_once_it_is_given_to_who_sends_it() -> None:
    x = exchange()
    x.disconnect = SimpleNamespace(
        happened=True, watch_disconnect_during_block=lambda _: contextlib.nullcontext()
    )
    x.line = SimpleNamespace(is_over=False)
    none = cast(Any, None)

    async def run() -> None:
        await ApprovedCallRunner(none, none, none, none, gate=none, notes=none).run_call_detached(
            x, asyncio.sleep(0)
        )

    asyncio.run(run())
    assert x.is_sent


@pytest.mark.parametrize("problem", [LOCKED, BUSY])
def test_a_call_that_was_begun_and_is_refused_on_its_way_has_an_end_in_its_timeline(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = SimpleNamespace(is_over=False, decided_by="")
    ends: list[Any] = []
    records = SimpleNamespace(
        get_or_create_timeline_session_id=gives("ses_a"),
        create_record_and_schedule_write=lambda *_: record,
        end_call_record=lambda *given: ends.append(given),
    )
    found = calls(records=records)
    monkeypatch.setattr(found, "decide_call", gives((Ruling("ask"), None)))
    monkeypatch.setattr(found, "await_tool_approval_and_answer", fails(problem))
    told = refusal(found.handle_tool_call(exchange()))
    assert ends == [(record, "failed", None, told.detail)]


def test_an_approved_call_whose_database_goes_before_it_is_sent_is_free_to_be_sent_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    none = cast(Any, None)
    runner = ApprovedCallRunner(none, none, none, none, gate=none, notes=none)
    monkeypatch.setattr(runner, "reload_upstream_server", fails(LOCKED))
    x = exchange()
    with pytest.raises(CallNotSent, match="was not asked"):
        asyncio.run(runner.send_approved_call(x, b"{}", None))
