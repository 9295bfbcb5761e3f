"""Limits, trials and caches between the calls that the other tests make."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event

import pytest
from mcp.server import MCPServer

from coordinator.mcp.gateway.call_limits import CallLimits, merge_strictest_call_limits
from tests.gateway.agents import furnish, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.example_server import Example, serving
from tests.gateway.reading_server import READ_ONLY
from tests.gateway.test_call_limits import LIMITS, becomes, began, limit
from tests.gateway.test_result_cache import CACHED
from tests.gateway.test_tool_trials import attempt
from tests.served import Served

PAST = "2026-01-01T00:00:00.000000Z"


@pytest.fixture
def limited(box: Served) -> Iterator[Served]:
    box.emptied(*LIMITS)
    began(box).ask("tools/list")
    yield box
    box.emptied(*LIMITS)


@pytest.mark.served
def test_calls_that_a_tools_rate_refuses_use_up_no_rate_of_the_server(
    limited: Served, example: Example
) -> None:
    limit(limited, calls_per_minute=6)
    limit(limited, tool="echo", calls_per_minute=1)
    wire = began(limited)
    becomes(lambda: wire.call("echo", text="hi"), lambda result: "may get 1 calls of echo" in text_of(result))
    limited.sql("DELETE FROM mcp_call_rates")
    sent = example.calls["echo hi"]
    for _ in range(8):
        wire.call("echo", text="hi")
    assert example.calls["echo hi"] == sent + 1
    assert text_of(wire.call("write", path="/t")) == "wrote /t", "the server has had one call of its six"


def reopen_a_breaker_whose_time_is_over(box: Served) -> None:
    box.sql(
        "INSERT INTO mcp_circuit_breakers (server_id, failures, open_until, last_problem, last_failed_at)"
        " VALUES ('example', 1, ?, 'broke', ?)",
        (PAST, PAST),
    )
    box.wait_until_known()


def test_the_strictest_of_a_servers_tools_are_also_those_without_a_setting() -> None:
    assert merge_strictest_call_limits({"search": CallLimits(marks_addresses=False)}).marks_addresses


@dataclass
class Slow:
    """A server with one value; reading it takes until `may_end`."""

    value: str = "old"
    begun: Event = field(default_factory=Event)
    may_end: Event = field(default_factory=Event)


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def caching(served: Served, slow: Slow) -> Iterator[Served]:
    tables = (*TABLES, *LIMITS, "mcp_cached_results")
    served.emptied(*tables)
    server = MCPServer("slow")

    @server.tool(annotations=READ_ONLY)
    async def peek() -> str:
        """Read the value."""
        value = slow.value
        slow.begun.set()
        while not slow.may_end.is_set():
            await asyncio.sleep(0.01)
        return value

    @server.tool()
    async def poke(value: str) -> str:
        """Write the value."""
        slow.value = value
        return "done"

    with serving(server.streamable_http_app()) as url:
        furnish(served, url)
        began(served).ask("tools/list")
        yield served
    served.emptied(*tables)


@pytest.mark.served
def test_a_tool_that_an_administrator_tries_drops_what_is_cached(caching: Served, slow: Slow) -> None:
    slow.may_end.set()
    limit(caching, cache_seconds=600)
    wire = began(caching)
    becomes(lambda: wire.call("peek"), lambda result: CACHED in result.get("_meta", {}))
    assert "Succeeded" in attempt(caching.sign_in("admin"), "poke", {"value": "new"}).text
    assert text_of(wire.call("peek")) == "new"
