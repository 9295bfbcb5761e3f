"""Limits, trials and caches between the calls that the other tests make."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import httpx
import pytest
from mcp.server import MCPServer

from coordinator.actions.mcp import call_limits as actions
from coordinator.actions.mcp import result_cache
from coordinator.actions.mcp.call_limits import CallRefusal
from coordinator.actions.mcp.result_cache import CacheLookup
from coordinator.mcp.gateway.call_limits import CallLimits, merge_strictest_call_limits
from coordinator.models import McpCallRate, McpCircuitBreaker
from tests.gateway.agents import Wire, furnish, rule, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.example_server import Example, serving
from tests.gateway.reading_server import READ_ONLY
from tests.gateway.test_call_limits import LIMITS, becomes, began, limit, links
from tests.gateway.test_held_calls import InBackground
from tests.gateway.test_result_cache import CACHED, stored_call
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


def open_a_breaker_whose_time_is_over(box: Served) -> None:
    """Have the worker know that the next call tries the server."""
    box.sql(
        "INSERT INTO mcp_circuit_breakers (server_id, failures, open_until, last_problem, last_failed_at)"
        " VALUES ('example', 1, ?, 'broke', ?)",
        (PAST, PAST),
    )
    box.wait_until_known()


@pytest.mark.served
def test_a_call_that_is_not_sent_is_not_the_one_that_tries_the_server_again(limited: Served) -> None:
    limit(limited, breaker_failures=1, breaker_seconds=600)
    limit(limited, tool="echo", calls_per_minute=1)
    wire = began(limited)
    becomes(lambda: wire.call("echo", text="hi"), lambda result: "may get 1 calls of echo" in text_of(result))
    open_a_breaker_whose_time_is_over(limited)
    assert "may get 1 calls of echo" in text_of(wire.call("echo", text="hi"))
    assert limited.sql("SELECT trial_until FROM mcp_circuit_breakers") == [(None,)]
    assert text_of(wire.call("write", path="/t")) == "wrote /t"
    assert limited.sql("SELECT count(*) FROM mcp_circuit_breakers") == [(0,)], "it is closed"


@pytest.mark.served
def test_a_client_that_leaves_does_not_keep_the_server_from_being_tried(limited: Served) -> None:
    limit(limited, breaker_failures=1, breaker_seconds=600)
    wire = began(limited)
    open_a_breaker_whose_time_is_over(limited)
    other = began(limited)
    message = other.message("tools/call", {"name": "slow", "arguments": {"path": "/a"}})
    with pytest.raises(httpx.ReadTimeout):
        other.http.post(other.path, json=message, headers=other.headers_for(message), timeout=0.5)
    until(lambda: limited.sql("SELECT trial_until FROM mcp_circuit_breakers") == [(None,)])
    assert text_of(wire.call("write", path="/t")) == "wrote /t"
    assert limited.sql("SELECT count(*) FROM mcp_circuit_breakers") == [(0,)], "it is closed"


NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def admit(
    rates: dict[str, int] | None = None, trial_until: datetime | None = None, now: datetime = NOW
) -> CallRefusal | None:
    return actions.admit_call_or_find_refusal("s", rates or {}, trial_until, now)


@pytest.fixture
def breaker() -> McpCircuitBreaker:
    return McpCircuitBreaker.objects.create(
        server_id="s", failures=1, last_problem="broke", last_failed_at=NOW, open_until=NOW
    )


@pytest.mark.django_db
def test_of_all_calls_one_tries_the_server_and_the_others_use_up_no_rate(breaker: McpCircuitBreaker) -> None:
    first, second = NOW + timedelta(seconds=60), NOW + timedelta(seconds=61)
    assert admit({"": 10}, first) is None
    used_until = McpCallRate.objects.get().used_until
    assert admit({"": 10}, second) == CallRefusal()
    assert McpCallRate.objects.get().used_until == used_until
    actions.free_breaker_trial("s", second)
    assert admit({}, second) == CallRefusal(), "the trial is another call's"
    actions.free_breaker_trial("s", first)
    assert admit({}, second) is None
    breaker.refresh_from_db()
    assert breaker.trial_until == second


@pytest.mark.django_db
def test_a_call_that_a_rate_refuses_does_not_try_the_server(breaker: McpCircuitBreaker) -> None:
    assert admit({"": 1}) is None
    assert admit({"": 1}, NOW + timedelta(seconds=60)) == CallRefusal("", 60.0)
    breaker.refresh_from_db()
    assert breaker.trial_until is None


@pytest.mark.django_db
def test_a_clock_that_is_set_back_does_not_use_up_a_rate() -> None:
    assert admit({"": 10}) is None
    earlier = NOW - timedelta(hours=1)
    assert admit({"": 10}, now=earlier) == CallRefusal("", 6.0)
    assert McpCallRate.objects.get().used_until == earlier.timestamp() + 60
    assert admit({"": 10}, now=earlier + timedelta(seconds=6)) is None


@pytest.mark.django_db
def test_a_call_that_is_counted_late_makes_no_way_for_others() -> None:
    assert [admit({"": 1}), admit({"": 1})] == [None, CallRefusal("", 60.0)]
    late = NOW - timedelta(seconds=5)
    assert admit({"": 1}, now=late) == CallRefusal("", 65.0)
    assert McpCallRate.objects.get().used_until == NOW.timestamp() + 60


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
    assert caching.sql("SELECT count(*) FROM mcp_cached_results") == [(0,)]
    assert text_of(wire.call("peek")) == "new"
    assert CACHED in wire.call("peek")["_meta"]


@pytest.mark.django_db
def test_a_result_is_not_stored_where_those_of_its_server_were_deleted_meanwhile() -> None:
    call = stored_call()
    before = result_cache.find_cached_call_result(call, NOW)
    assert before == CacheLookup("none")
    result_cache.delete_cached_results("another")
    result_cache.store_cached_result(call, before, b"{}", answered_at=NOW, now=NOW)
    assert result_cache.delete_cached_results("files") == 1
    result_cache.store_cached_result(call, before, b"{}", answered_at=NOW, now=NOW)
    after = result_cache.find_cached_call_result(call, NOW)
    assert after == CacheLookup("none", generation=1)
    result_cache.store_cached_result(call, after, b"{}", answered_at=NOW, now=NOW)
    assert result_cache.find_cached_call_result(call, NOW) == CacheLookup("none", b"{}", generation=1)


@pytest.mark.served
def test_a_tool_that_an_administrator_tries_drops_what_is_cached(caching: Served, slow: Slow) -> None:
    slow.may_end.set()
    limit(caching, cache_seconds=600)
    wire = began(caching)
    becomes(lambda: wire.call("peek"), lambda result: CACHED in result.get("_meta", {}))
    assert "Succeeded" in attempt(caching.sign_in("admin"), "poke", {"value": "new"}).text
    assert text_of(wire.call("peek")) == "new"


@pytest.fixture
def cut(limited: Served) -> tuple[Wire, str]:
    """A client whose call a rule allows for its arguments, and the rest of the result."""
    rule(limited, "mcp__example__write", "allow", pattern=r'.*"path": ?"/t".*')
    rule(limited, "mcp__example__*", "deny")
    limit(limited, tool="write", result_kib=2)
    wire = began(limited)
    result = becomes(
        lambda: wire.call("write", path="/t", content="x" * 5_000), lambda result: bool(links(result))
    )
    return wire, links(result)[0]


def read_rest(wire: Wire, uri: str) -> Any:
    return wire.response(wire.send("resources/read", {"uri": uri}))


@pytest.mark.served
def test_the_rest_of_a_result_that_a_rule_allows_for_some_arguments_is_read(
    limited: Served, cut: tuple[Wire, str]
) -> None:
    (part,) = read_rest(*cut)["result"]["contents"][:1]
    assert set(part["text"]) == {"x"}
    (stored,) = limited.sql("SELECT arguments FROM mcp_stored_results")[0]
    assert "/t" not in stored
    limited.sql("DELETE FROM tool_rules WHERE verdict = 'allow'")
    limited.wait_until_known()
    assert read_rest(*cut)["error"]["code"] == -32012


@pytest.mark.served
@pytest.mark.parametrize("arguments", [None, "", "bm90IHNlYWxlZA=="])
def test_the_rest_of_a_result_whose_arguments_are_not_known_is_not_read_so(
    limited: Served, cut: tuple[Wire, str], arguments: str | None
) -> None:
    limited.sql("UPDATE mcp_stored_results SET arguments = ?", (arguments,))
    assert read_rest(*cut)["error"]["code"] == -32012


@pytest.mark.served
def test_the_rest_of_a_result_that_a_rule_denies_for_its_arguments_is_not_read(limited: Served) -> None:
    limit(limited, tool="write", result_kib=2)
    wire = began(limited)

    def write(path: str) -> dict[str, Any]:
        return wire.call("write", path=path, content="x" * 5_000)

    (denied,) = links(becomes(lambda: write("/t"), lambda result: bool(links(result))))
    (allowed,) = links(write("/u"))
    rule(limited, "mcp__example__write", "deny", pattern=r'.*"path": ?"/t".*')
    limited.wait_until_known()
    assert read_rest(wire, denied)["error"]["code"] == -32012
    assert "result" in read_rest(wire, allowed)
