"""Results of read-only tools are answered again to the agent that got them, until they are old or anything changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.actions.mcp import gateway_upkeep, result_cache
from coordinator.actions.mcp.result_cache import CacheLookup
from coordinator.edge.gateway.upstream_calls import UpstreamSender
from coordinator.errors import Forbidden
from coordinator.identity.actors import Actor
from coordinator.mcp.gateway.cached_results import (
    CachedCall,
    build_cache_lookup_or_none,
    build_cached_response,
    extract_cachable_result_or_none,
    hash_tool_cache_version,
)
from coordinator.mcp.gateway.call_limits import CallLimits
from coordinator.mcp.gateway.servers import ListedTool, UpstreamServer, load_upstream_server
from coordinator.models import CachedResult, McpCallLimit, McpServer, McpTool, McpUpstream
from tests.gateway import reading_server, signed_in_server
from tests.gateway.agents import AGENT, OTHER_KEY, Wire, furnish, grant, rule, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.reading_server import Reading
from tests.gateway.test_call_limits import LIMITS, TOKEN, began, limit
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.gateway.test_result_marks import EVIL
from tests.gateway.test_sign_ins import OAUTH, call, choose, sign_in, switch_on
from tests.patience import until
from tests.served import Served

SERVER = UpstreamServer(
    "files",
    None,
    tools={"read": ListedTool("a", "a", False, is_read_only=True), "write": ListedTool("b", "b", False)},
    limits={"": CallLimits(cache_seconds=60), "off": CallLimits(cache_seconds=0)},
    edition="first",
)
CACHED = "signalbox/cached"


class BrakedMeanwhile(Exception):
    """What a recheck raises."""


def cached_call(arguments: str = '{"path": "a", "lines": 1}', **changes: Any) -> CachedCall | None:
    fields: dict[str, Any] = {"server": SERVER, "tool": "read", "agent_id": AGENT, "dialect": ["2025-11-25"]}
    body = f'{{"params": {{"name": "read", "_meta": {{"progressToken": 1}}, "arguments": {arguments}}}}}'
    return build_cache_lookup_or_none(**(fields | {"body": body.encode()} | changes))


def cache_key(call: CachedCall | None, sign_in_of: str = "ada") -> str:
    assert call is not None
    return call.build_cache_key(sign_in_of)


def test_the_same_call_has_the_same_key_whatever_the_order_of_its_arguments() -> None:
    key = cache_key(cached_call())
    assert cache_key(cached_call('{ "lines":1, "path":"\\u0061" }')) == key
    other_calls = [
        cached_call('{"path": "a", "lines": 2}'),
        cached_call('{"path": "a", "lines": 1.00000000000000000001}'),
        cached_call('{"path": "a", "lines": 1.0}'),
        cached_call('{"path": "a", "lines": true}'),
        cached_call('{"path": "a", "lines": "1"}'),
        cached_call('{"path": "a"}'),
        cached_call(agent_id="agent.two"),
        cached_call(dialect=["2026-07-28"]),
    ]
    keys = [cache_key(other) for other in other_calls] + [cache_key(cached_call(), "grace")]
    assert len({key, *keys}) == 1 + len(keys)


@pytest.mark.parametrize(
    "changes",
    [
        {"edition": "second"},
        {"headers": (("Authorization", "other"),)},
        {"limits": {"": CallLimits(cache_seconds=60, masks_secrets=True)}},
        {"tools": {"read": ListedTool("c", "c", False, is_read_only=True)}},
    ],
)
def test_a_change_of_the_server_its_tool_or_its_limits_makes_another_key(changes: dict[str, Any]) -> None:
    assert cache_key(cached_call(server=replace(SERVER, **changes))) != cache_key(cached_call())


@pytest.mark.parametrize(
    "changes",
    [
        {"tool": "write"},
        {"tool": "unknown"},
        {"tool": "off"},
        {"body": b'{"params": {"name": "read", "task": {"ttl": 60000}}}'},
        {"body": b'{"params": {"name": "read", "inputResponses": {}}}'},
        {"body": b'{"params": {"name": "read", "arguments": {"path": "%s"}}}' % (b"x" * 20_000)},
        {"body": b'{"params": {"name": "read", "arguments": {"n": 1e99999999999999999999}}}'},
        {"body": b'{"params": {"arguments": ' + b"[" * 2_000},
        {"body": b"[]"},
    ],
)
def test_other_calls_are_not_cached(changes: dict[str, Any]) -> None:
    assert cached_call(**changes) is None


@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "isError": True},
        {"content": [], "isError": 1},
        {"content": [], "isError": "false"},
        {"task": {"taskId": "t"}},
        {"content": [], "resultType": "input_required"},
        {"content": [], "resultType": "task"},
        {"content": [{"type": "text", "text": "x" * 200_000}]},
        [],
    ],
)
def test_errors_tasks_questions_and_long_results_are_not_stored(result: Any) -> None:
    assert (
        extract_cachable_result_or_none(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode())
        is None
    )


@pytest.mark.parametrize(
    "response",
    [b'{"id":1,"error":{}}', b'{"id":1,"result":{},"error":{}}', b"{", b"", b'{"result":' + b"[" * 9_000],
)
def test_what_is_no_result_is_not_stored(response: bytes) -> None:
    assert extract_cachable_result_or_none(response) is None


def test_a_cached_result_says_how_old_it_is_and_is_otherwise_the_same() -> None:
    result = {"content": [{"type": "text", "text": "ä"}], "structuredContent": {"n": 1e3}, "_meta": {"a": 1}}
    stored = extract_cachable_result_or_none(
        json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}).encode()
    )
    assert stored is not None
    response = json.loads(build_cached_response("eight", stored, 12))
    assert response == {
        "jsonrpc": "2.0", "id": "eight", "result": result | {"_meta": {"a": 1, CACHED: {"age_seconds": 12}}},
    }  # fmt: skip


@pytest.fixture
def reading() -> Iterator[Reading]:
    with reading_server.running() as running:
        yield running


@pytest.fixture
def box(served: Served, reading: Reading) -> Iterator[Served]:
    tables = (*TABLES, *LIMITS, *OAUTH, "mcp_cached_results", "mcp_result_marks")
    served.emptied(*tables)
    furnish(served, reading.url)
    began(served).ask("tools/list")
    yield served
    served.emptied(*tables)


def cache(box: Served, seconds: int | str = 600, **fields: str | int) -> None:
    """Have results cached, in the worker, too."""
    assert "Saved." in limit(box, cache_seconds=seconds, **fields)


def read(wire: Wire, path: str = "/a", **arguments: Any) -> str:
    return text_of(wire.call("read", path=path, **arguments))


def cached_answer(wire: Wire, path: str = "/a") -> dict[str, Any]:
    """Call until the answer comes from the cache; return it."""
    return until(
        lambda: [result for result in [wire.call("read", path=path)] if CACHED in result.get("_meta", {})]
    )[0]


@pytest.mark.served
@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("server", ["example", ""])
def test_the_same_call_is_answered_again_and_the_server_is_not_asked(
    box: Served, reading: Reading, server: str, stateless: bool
) -> None:
    cache(box)
    wire = began(box, server=server, stateless=stateless)
    name = "read" if server else "example__read"
    first = text_of(wire.call(name, path="/a"))
    assert [text_of(wire.call(name, path="/a")) for _ in range(3)] == [first] * 3
    assert reading.calls["read"] == 1
    result = wire.call(name, path="/a")
    assert result["_meta"][CACHED]["age_seconds"] >= 0
    assert result.get("resultType") == ("complete" if stateless else None)
    assert text_of(wire.call(name, path="/b")) == "/b 2"
    assert text_of(began(box, server=server, stateless=not stateless).call(name, path="/a")) == "/a 3"


@pytest.mark.served
def test_no_other_agent_gets_a_cached_result(box: Served, reading: Reading) -> None:
    cache(box)
    wire, other = began(box), began(box, key=OTHER_KEY)
    assert cached_answer(wire)
    sent = reading.calls["read"]
    assert read(other) == f"/a {sent + 1}"
    assert reading.calls["read"] == sent + 1


@pytest.mark.served
def test_only_results_of_tools_whose_accepted_definition_says_so_are_cached(
    box: Served, reading: Reading
) -> None:
    cache(box)
    wire = began(box)
    assert cached_answer(wire)
    assert [text_of(wire.call("write", path="/a")) for _ in range(2)] == ["/a 1", "/a 2"]
    for hash_of, content in (("definition_hash", None), ("accepted", json.dumps({"annotations": {}}))):
        box.sql(f"UPDATE mcp_tools SET {hash_of} = ? WHERE name = 'read'", (content or "other",))
        sent = reading.calls["read"]
        assert [read(wire) for _ in range(2)] == [f"/a {sent + 1}", f"/a {sent + 2}"]
        box.sql("UPDATE mcp_tools SET definition_hash = accepted_hash WHERE name = 'read'")


@pytest.mark.served
def test_errors_and_calls_in_which_the_server_asked_are_not_cached(box: Served, reading: Reading) -> None:
    cache(box)
    wire = began(box)
    assert cached_answer(wire)
    assert all(wire.call("fail", path="/a")["isError"] for _ in range(2))
    assert reading.calls["fail"] == 2
    rule(box, "mcp__example__elicitation/create", "deny")
    answers = [text_of(wire.call("ask")) for _ in range(2)]
    assert [answer.split()[-1] for answer in answers] == ["1", "2"]


@pytest.mark.served
@pytest.mark.parametrize("how", ["grant", "rule", "brake", "rate"])
def test_a_call_that_may_not_run_is_not_answered_from_the_cache(box: Served, how: str) -> None:
    cache(box, **({"calls_per_minute": 60} if how == "rate" else {}))
    wire = began(box)
    assert cached_answer(wire)
    if how == "grant":
        grant(box, AGENT, "read", "deny")
    elif how == "rule":
        rule(box, "mcp__example__read", "deny")
    elif how == "rate":
        ahead = "UPDATE mcp_call_rates SET used_until = used_until + 58"
        box.sql(ahead)
    else:
        box.sql(
            "INSERT INTO brakes (reach, name, reason, set_at, set_by) VALUES ('everything', '', 'Odd.', ?, 'user:ann')",
            ("2026-11-01T00:00:00+00:00",),
        )
    try:
        refused = [wire.call("read", path="/a") for _ in range(3)][-1]
    finally:
        box.sql("DELETE FROM brakes")
    assert refused["isError"]
    assert CACHED not in refused.get("_meta", {})


def test_what_stops_a_call_between_its_decision_and_the_answer_stops_a_cached_answer_too() -> None:
    answered: list[str] = []

    async def prepare_call_cache_entry(*_: Any) -> SimpleNamespace:
        return SimpleNamespace(lookup=SimpleNamespace(result=b"{}"))

    async def audit_and_build_cached_response(*_: Any) -> bytes:
        answered.append("cached")
        return b"{}"

    async def stop_call() -> None:
        raise BrakedMeanwhile

    async def pass_limits(*_: Any) -> None:
        return

    cache: Any = SimpleNamespace(
        prepare_call_cache_entry=prepare_call_cache_entry,
        audit_and_build_cached_response=audit_and_build_cached_response,
    )
    limiter: Any = SimpleNamespace(enforce_rates_and_circuit_breaker=pass_limits)
    unused: Any = None
    sender = UpstreamSender(unused, unused, unused, unused, limiter, cache=cache, server_requests=unused)
    with pytest.raises(BrakedMeanwhile):
        asyncio.run(sender.send_call_or_use_cached_result(unused, b"{}", None, stop_call))
    assert answered == []


@pytest.mark.served
def test_a_person_is_asked_about_a_call_whose_result_is_cached(box: Served, reading: Reading) -> None:
    cache(box)
    wire = began(box)
    first = text_of(cached_answer(wire))
    sent = reading.calls["read"]
    rule(box, "mcp__example__read", "ask")
    for verdict, text in (("denied", "denied"), ("approved", first)):
        waiting = InBackground(lambda: wire.call("read", path="/a"))
        (request_id,) = pending(box)
        decide(box, request_id, verdict)
        assert text in text_of(waiting.result())
    assert reading.calls["read"] == sent


@pytest.mark.served
def test_a_result_is_not_answered_when_it_is_too_old(box: Served, reading: Reading) -> None:
    cache(box)
    wire = began(box)
    assert cached_answer(wire)
    sent = reading.calls["read"]
    box.sql("UPDATE mcp_cached_results SET expires_at = '2026-01-01T00:00:00.000000Z'")
    assert read(wire) == f"/a {sent + 1}"
    assert read(wire) == f"/a {sent + 1}"
    box.sql("UPDATE mcp_cached_results SET answered_at = '2026-01-01T00:00:00.000000Z'")
    assert read(wire) == f"/a {sent + 2}"


@pytest.mark.served
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE mcp_tools SET changed_at = '2026-11-02T00:00:00.000000Z' WHERE name = 'read'",
        "UPDATE mcp_upstreams SET changed_at = '2026-11-02T00:00:00.000000Z'",
        "INSERT INTO mcp_credentials (server_id, kind, name, value, set_by, set_at)"
        " VALUES ('example', 'header', 'X-Team', 'env:HOME', 'test', '2026-11-02T00:00:00.000000Z')",
        "UPDATE mcp_call_limits SET masks_secrets = (1 = 1)",
    ],
)
def test_no_result_from_before_a_change_is_answered(box: Served, reading: Reading, change: str) -> None:
    cache(box)
    wire = began(box)
    assert cached_answer(wire)
    sent = reading.calls["read"]
    box.sql(change)
    try:
        assert read(wire) == f"/a {sent + 1}"
        assert "1 result of 1 agent" in box.sign_in("viewer").get("/ui/mcp/servers/example/").text
    finally:
        box.sql("DELETE FROM mcp_credentials")


@pytest.mark.served
def test_an_edit_of_limits_and_a_call_that_may_change_something_delete_what_is_cached(
    box: Served, reading: Reading
) -> None:
    cache(box)
    wire = began(box)
    assert cached_answer(wire)
    cache(box, 500)
    assert box.sql("SELECT count(*) FROM mcp_cached_results") == [(0,)]
    assert cached_answer(wire)
    wire.call("fail", path="/a")
    assert box.sql("SELECT count(*) FROM mcp_cached_results") == [(1,)]
    wire.call("write", path="/a")
    assert box.sql("SELECT count(*) FROM mcp_cached_results") == [(0,)]
    sent = reading.calls["read"]
    assert read(wire) == f"/a {sent + 1}"
    cache(box, 0, tool="read")
    assert [read(wire), read(wire)] == [f"/a {sent + 2}", f"/a {sent + 3}"]


@pytest.mark.served
def test_secrets_are_masked_marks_are_written_and_cut_results_are_not_stored(
    box: Served, reading: Reading
) -> None:
    cache(box, masks="yes", result_kib=2)
    wire = began(box)
    assert TOKEN not in text_of(cached_answer(wire, f"{TOKEN} {EVIL}"))
    before = box.sql("SELECT count(*) FROM mcp_result_marks")[0][0]
    again = began(box)
    assert CACHED in again.call("read", path=f"{TOKEN} {EVIL}")["_meta"]
    assert box.sql("SELECT count(*) FROM mcp_result_marks")[0][0] == before + 1
    sent = reading.calls["read"]
    for _ in range(2):
        wire.call("read", path="x" * 9_000)
    assert reading.calls["read"] == sent + 2
    assert TOKEN not in str(box.sql("SELECT * FROM mcp_cached_results"))


@pytest.mark.served
def test_the_timeline_the_audit_log_and_the_page_say_so_and_the_cache_is_emptied(
    box: Served, reading: Reading
) -> None:
    cache(box)
    wire = began(box)
    assert cached_answer(wire)
    (entry,) = box.sql(
        "SELECT target_id, metadata FROM audit_logs WHERE event_type = 'MCP_ANSWERED_FROM_CACHE'"
        " ORDER BY id DESC LIMIT 1"
    )
    assert "age_seconds" in str(entry[1])
    viewer = box.sign_in("viewer")
    until(
        lambda: "answered from the cache with a result from" in viewer.get(f"/ui/sessions/{entry[0]}/").text
    )
    page = box.sign_in("viewer").get("/ui/mcp/servers/example/").text
    assert "1 result of 1 agent" in page
    assert "answered again for 600 s" in page
    tool = box.sign_in("viewer").get("/ui/mcp/tool/?server=example&tool=write").text
    assert "Results of this tool are not cached" in tool
    viewer = box.sign_in("viewer").post("/ui/mcp/limits/empty/", data={"server": "example"})
    assert viewer.status_code == 403
    admin = box.sign_in("admin")
    assert "The cache is empty." in admin.post("/ui/mcp/limits/empty/", data={"server": "example"}).text
    assert box.sql("SELECT count(*) FROM mcp_cached_results") == [(0,)]
    sent = reading.calls["read"]
    assert read(wire) == f"/a {sent + 1}"
    for seconds in (86_401, "soon"):
        assert "answered again" in limit(box, cache_seconds=seconds)


@pytest.mark.served
def test_a_result_is_answered_to_the_agent_of_the_person_alone_whose_sign_in_it_was(served: Served) -> None:
    with signed_in_server.running() as upstream:
        served.emptied(*TABLES, *LIMITS, *OAUTH, "mcp_cached_results")
        furnish(served, upstream.url)
        switch_on(served, "person")
        sign_in(served, "admin")
        upstream.person = "grace"
        sign_in(served, "approver")
        choose(served, AGENT, "admin")
        assert text_of(call(served)["result"]) == "ada"
        served.sql(
            "UPDATE mcp_tools SET annotations = ?, accepted = ? WHERE name = 'whoami'",
            ('{"readOnlyHint": true}', '{"annotations": {"readOnlyHint": true}}'),
        )
        cache(served)
        until(lambda: CACHED in call(served)["result"].get("_meta", {}))
        sent = upstream.asked["whoami"]
        choose(served, AGENT, "approver")
        assert text_of(call(served)["result"]) == "grace"
        assert upstream.asked["whoami"] == sent + 1
        until(lambda: CACHED in call(served)["result"].get("_meta", {}))
        served.sql("DELETE FROM mcp_access_tokens")
        assert "needs a sign-in" in str(call(served))
    served.emptied(*TABLES, *LIMITS, *OAUTH, "mcp_cached_results")


def stored_call(server_id: str = "files", scope: str = "now", question: bytes = b"") -> CachedCall:
    return CachedCall(server_id, "read", AGENT, 60, scope, question)


@pytest.mark.django_db
def test_the_newest_results_of_a_server_are_stored_each_once_and_old_ones_are_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(result_cache, "MAX_CACHED_PER_SERVER", 3)
    now = datetime(2026, 11, 28, tzinfo=UTC)

    def store(call: CachedCall, result: bytes, at: datetime) -> None:
        result_cache.store_cached_result(call, CacheLookup("none"), result, answered_at=at, now=at)

    for number in range(5):
        store(stored_call(question=b"%d" % number), b"{}", now + timedelta(seconds=number))
    store(stored_call("other"), b'{"first": 1}', now)
    store(stored_call("other"), b'{"second": 2}', now + timedelta(seconds=1))
    assert CachedResult.objects.filter(server_id="files").count() == 3
    assert result_cache.find_cached_call_result(stored_call(question=b"0"), now) == CacheLookup("none")
    at = now + timedelta(seconds=11)
    assert result_cache.find_cached_call_result(stored_call("other"), at) == CacheLookup(
        "none", b'{"second": 2}', 10
    )
    assert result_cache.find_cached_call_result(stored_call("other", scope="later"), at) == CacheLookup(
        "none"
    )
    result_cache.store_cached_result(
        stored_call("third"), CacheLookup("of ada"), b"{}", answered_at=now, now=now
    )
    assert not CachedResult.objects.filter(server_id="third").exists()


@pytest.mark.django_db
def test_housekeeping_deletes_results_that_are_too_old_and_those_from_before_a_change() -> None:
    now = datetime(2026, 11, 28, tzinfo=UTC)
    McpServer.objects.create(name="files", command="", created_at=now)
    McpUpstream.objects.create(server_id="files", url="http://192.0.2.1/mcp", changed_at=now)
    content = {"annotations": {"readOnlyHint": True}}
    McpTool.objects.create(
        server_id="files", name="read", definition_hash="a", accepted_hash="a", accepted=content,
        accepted_by="user:ann", accepted_at=now, first_listed_at=now, listed_at=now,
    )  # fmt: skip
    McpCallLimit.objects.create(server_id="files", cache_seconds=60, changed_by="user:ann", changed_at=now)
    server = load_upstream_server("files")
    assert server is not None
    calls = [
        stored_call(scope=hash_tool_cache_version(server, "read")),
        stored_call(scope="before"),
        stored_call("gone"),
    ]
    for cached in calls:
        result_cache.store_cached_result(cached, CacheLookup("none"), b"{}", answered_at=now, now=now)
    gateway_upkeep.clean_gateway_tables(now)
    assert [row.scope for row in CachedResult.objects.all()] == [calls[0].scope]
    assert result_cache.list_valid_cached_results("files", now)
    gateway_upkeep.clean_gateway_tables(now + timedelta(seconds=61))
    assert not CachedResult.objects.exists()


@pytest.mark.django_db
def test_a_key_cannot_empty_the_cache() -> None:
    key = Actor("key", "agent")
    with pytest.raises(Forbidden):
        result_cache.clear_result_cache("files", actor=key, now=datetime(2026, 11, 28, tzinfo=UTC))
