"""Limits, trials and caches between the calls that the other tests make."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import httpx
import pytest
from mcp.server import MCPServer

from coordinator.actions.mcp import call_limits as actions
from coordinator.mcp.gateway.call_limits import CallLimits, merge_strictest_call_limits
from coordinator.models import McpCallRate
from tests.gateway.agents import furnish, rule, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.example_server import Example, serving
from tests.gateway.reading_server import READ_ONLY
from tests.gateway.test_call_limits import LIMITS, becomes, began, limit, links
from tests.gateway.test_held_calls import InBackground
from tests.gateway.test_result_cache import CACHED
from tests.gateway.test_tool_trials import attempt
from tests.patience import until
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


@pytest.mark.served
def test_a_call_that_is_not_sent_is_not_the_one_that_tries_the_server_again(limited: Served) -> None:
    limit(limited, breaker_failures=1, breaker_seconds=600)
    limit(limited, tool="echo", calls_per_minute=1)
    wire = began(limited)
    becomes(lambda: wire.call("echo", text="hi"), lambda result: "may get 1 calls of echo" in text_of(result))
    limited.sql(
        "INSERT INTO mcp_circuit_breakers (server_id, failures, open_until, last_problem, last_failed_at)"
        " VALUES ('example', 1, ?, 'broke', ?)",
        (PAST, PAST),
    )
    limited.sql("UPDATE mcp_upstreams SET changed_at = changed_at")
    becomes(
        lambda: wire.call("echo", text="hi"),
        lambda result: (
            bool(limited.sql("SELECT 1 FROM mcp_circuit_breakers WHERE trial_until IS NOT NULL"))
            or "may get 1 calls" in text_of(result)
        ),
    )
    assert text_of(wire.call("write", path="/t")) == "wrote /t", "nothing tries the server"


def reopen_a_breaker_whose_time_is_over(box: Served) -> None:
    box.sql(
        "INSERT INTO mcp_circuit_breakers (server_id, failures, open_until, last_problem, last_failed_at)"
        " VALUES ('example', 1, ?, 'broke', ?)",
        (PAST, PAST),
    )
    box.wait_until_known()


@pytest.mark.served
def test_a_client_that_leaves_does_not_keep_the_server_from_being_tried(limited: Served) -> None:
    limit(limited, breaker_failures=1, breaker_seconds=600)
    wire = began(limited)
    reopen_a_breaker_whose_time_is_over(limited)
    other = began(limited)
    message = other.message("tools/call", {"name": "slow", "arguments": {"path": "/a"}})
    with pytest.raises(httpx.ReadTimeout):
        other.http.post(other.path, json=message, headers=other.headers_for(message), timeout=0.5)
    assert limited.sql("SELECT 1 FROM mcp_circuit_breakers WHERE trial_until IS NOT NULL"), "it was the trial"
    left_at = time.monotonic()
    until(lambda: text_of(wire.call("write", path="/t")) == "wrote /t")
    assert time.monotonic() - left_at < 5, "nothing tries the server"


@pytest.mark.django_db
def test_a_clock_that_is_set_back_does_not_use_up_a_rate() -> None:
    now = datetime(2026, 11, 28, 12, tzinfo=UTC)
    assert actions.count_call_or_retry_seconds("s", "", 10, now) == 0
    assert actions.count_call_or_retry_seconds("s", "", 10, now - timedelta(hours=1)) <= 60
    assert McpCallRate.objects.get().used_until <= (now - timedelta(hours=1)).timestamp() + 60


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
def test_a_read_that_a_write_overtook_is_not_answered_again(caching: Served, slow: Slow) -> None:
    limit(caching, cache_seconds=600)
    wire = began(caching)
    slow.may_end.set()
    becomes(lambda: wire.call("peek"), lambda result: CACHED in result.get("_meta", {}))
    wire.call("poke", value="old")
    slow.may_end.clear()
    slow.begun.clear()
    reading = InBackground(lambda: began(caching).call("peek"))
    assert slow.begun.wait(10)
    assert text_of(wire.call("poke", value="new")) == "done"
    slow.may_end.set()
    assert text_of(reading.result()) == "old"
    assert text_of(wire.call("peek")) == "new"


@pytest.mark.served
def test_a_tool_that_an_administrator_tries_drops_what_is_cached(caching: Served, slow: Slow) -> None:
    slow.may_end.set()
    limit(caching, cache_seconds=600)
    wire = began(caching)
    becomes(lambda: wire.call("peek"), lambda result: CACHED in result.get("_meta", {}))
    assert "Succeeded" in attempt(caching.sign_in("admin"), "poke", {"value": "new"}).text
    assert text_of(wire.call("peek")) == "new"


@pytest.mark.served
def test_the_rest_of_a_result_that_a_rule_allows_for_some_arguments_is_read(limited: Served) -> None:
    rule(limited, "mcp__example__write", "allow", pattern=r'.*"path": ?"/t".*')
    rule(limited, "mcp__example__*", "deny")
    limit(limited, tool="write", result_kib=2)
    wire = began(limited)
    result = becomes(
        lambda: wire.call("write", path="/t", content="x" * 5_000), lambda result: bool(links(result))
    )
    answer: Any = wire.response(wire.send("resources/read", {"uri": links(result)[0]}))
    assert "result" in answer, answer
