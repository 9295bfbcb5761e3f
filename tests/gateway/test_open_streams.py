"""What is held open at the gateway ends with the key that opened it, and has a clock and a bound."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from coordinator.edge.gateway import upstreams
from coordinator.mcp.protocol.http_client import HttpClient, UpstreamFailed, parse_upstream_url
from tests.gateway.agents import BOTH, LONG_AGO, Wire, rule
from tests.gateway.example_server import Example
from tests.gateway.test_held_calls import InBackground, pending
from tests.patience import AT_ONCE, PATIENCE
from tests.served import Served

served_alone = pytest.mark.served


def revoke(box: Served) -> float:
    """Revoke the agent's key, as another process does; return when."""
    box.sql("UPDATE api_keys SET revoked_at = ? WHERE name = 'agent.one'", (LONG_AGO,))
    return time.monotonic()


@served_alone
@pytest.mark.parametrize("door", ["example", ""])
def test_a_stream_ends_at_once_with_its_key(box: Served, door: str) -> None:
    wire = Wire(box, server=door)
    wire.initialize()
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": str(wire.session)}
    with wire.http.stream("GET", wire.path, headers=headers, timeout=PATIENCE) as answer:
        assert answer.status_code == 200
        at = revoke(box)
        list(answer.iter_bytes())
        assert time.monotonic() - at < AT_ONCE


@served_alone
def test_a_call_under_way_ends_with_its_key(box: Served, example: Example) -> None:
    wire = Wire(box)
    wire.initialize()

    def call() -> tuple[int, str]:
        answer = wire.send("tools/call", {"name": "slow", "arguments": {"path": "/a"}})
        return answer.status_code, answer.text

    under_way = InBackground(call)
    assert example.began.wait(PATIENCE)
    at = revoke(box)
    status, text = under_way.result()
    assert time.monotonic() - at < AT_ONCE
    assert (status, "slow /a" in text) in {(200, False), (401, False)}
    example.release.set()


@served_alone
def test_a_call_that_waits_for_a_person_ends_with_its_key(box: Served, example: Example) -> None:
    rule(box, "mcp__example__write", "ask")
    wire = Wire(box)
    wire.initialize()
    waiting = InBackground(lambda: wire.send("tools/call", {"name": "write", "arguments": {"path": "/a"}}))
    pending(box)
    at = revoke(box)
    answer: httpx.Response = waiting.result()
    assert time.monotonic() - at < AT_ONCE
    assert "wrote" not in answer.text
    assert not example.calls


@served_alone
def test_a_client_hears_that_its_tools_have_changed_at_the_door_of_all_servers(box: Served) -> None:
    wire = Wire(box, server="")
    assert wire.initialize()["capabilities"]["tools"] == {"listChanged": True}
    names = [tool["name"] for tool in wire.ask("tools/list")["tools"]]
    assert "example__zap" in names
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": str(wire.session)}
    with wire.http.stream("GET", wire.path, headers=headers, timeout=PATIENCE) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": here"
        rule(box, "mcp__elsewhere__zap", "deny")
        rule(box, "mcp__example__zap", "deny")
        told = next(line for line in lines if line.startswith("data:"))
    assert "notifications/tools/list_changed" in told
    assert "example__zap" not in [tool["name"] for tool in wire.ask("tools/list")["tools"]]


def test_an_answer_that_trickles_has_a_clock_and_a_stream_a_bound() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        if b"GET" in asked:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for _ in range(50):
                writer.write(b"data: {}\n\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
        await writer.drain()

    async def ask(method: str) -> upstreams.UpstreamAnswer:
        target = parse_upstream_url(f"http://127.0.0.1:{port}/mcp", private=True)
        return await HttpClient().send_http_request(target, method, [("Accept", BOTH)], within=5)

    async def both() -> None:
        nonlocal port
        server = await asyncio.start_server(trickle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        answer = await ask("POST")
        with pytest.raises(UpstreamFailed, match="did not end its answer within"):
            await upstreams.relay_events_before_response(answer, 1, None, within=0.05)
        answer.close()
        answer = await ask("GET")
        with pytest.raises(UpstreamFailed, match="streamed more than 100 bytes"):
            async for _ in upstreams.iterate_upstream_sse_events(answer, 100):
                pass
        answer.close()
        server.close()

    port = 0
    asyncio.run(both())
