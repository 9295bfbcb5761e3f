"""An upstream that sends headers and then nothing is left after a while; stdio servers tell agents apart."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.actions.mcp import gateway_calls
from coordinator.edge.gateway import upstreams
from coordinator.edge.gateway.approved_calls import ApprovedCallRunner
from coordinator.edge.gateway.call_timeouts import CallTimeouts
from coordinator.edge.gateway.listings import AgentToolListings
from coordinator.edge.gateway.upstreams import (
    hash_agent_id_for_stdio,
    iterate_upstream_sse_events,
    read_response_to_gateway_request,
)
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.protocol import http_client
from coordinator.mcp.protocol.http_client import (
    HttpClient,
    UpstreamAnswer,
    UpstreamFailed,
    parse_upstream_url,
)
from tests.gateway import rude_server


async def lingering(url: str) -> UpstreamAnswer:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "linger"}}
    return await HttpClient().send_http_request(
        parse_upstream_url(url, private=True), "POST", [], json.dumps(body).encode(), within=5
    )


@pytest.mark.parametrize("bound", ["OWN_WITHIN", "LONGEST_STREAM"])
def test_a_body_that_does_not_come_is_not_waited_for(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstreams, bound, 0.05)

    async def read() -> None:
        answer = await lingering(server.url)
        try:
            if bound == "OWN_WITHIN":
                await read_response_to_gateway_request(answer, "1")
            else:
                [_ async for _ in iterate_upstream_sse_events(answer)]
        finally:
            answer.close()

    with rude_server.running() as server, pytest.raises(UpstreamFailed) as failed:
        asyncio.run(read())
    assert failed.value.may_have_run


@pytest.mark.parametrize("holds", [-1.0, 60.0])
def test_a_call_whose_server_was_slow_to_connect_is_looked_at_before_it_is_sent(
    holds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "LOOK_HOLDS", holds)
    received: list[bytes] = []

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def braked() -> None:
        raise Braked

    async def call() -> None:
        async with await asyncio.start_server(served, "127.0.0.1", 0) as server:
            target = parse_upstream_url(
                f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", private=True
            )
            try:
                (
                    await HttpClient().send_http_request(target, "POST", [], b"{}", within=5, recheck=braked)
                ).close()
            finally:
                async with asyncio.timeout(5):
                    while not received:
                        await asyncio.sleep(0)

    with pytest.raises(Braked) if holds < 0 else nullcontext():
        asyncio.run(call())
    assert received == [b"" if holds < 0 else b"P"]


class Braked(Exception):
    pass


class _Quiet(AgentToolListings):
    """Listings of a server that does not list its tools."""

    def __init__(self) -> None:
        self._looked, self._looking = {}, {}

    async def find_current_server(self, x: Any) -> UpstreamServer:
        return x.server  # type: ignore[no-any-return]

    async def fetch_and_store_tools(self, x: Any) -> None:
        await asyncio.Event().wait()


def test_looking_for_a_tool_holds_the_server_s_lock_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.edge.gateway.listings.OWN_WITHIN", 0.05)

    class X:
        server = UpstreamServer("s", None)

    async def look() -> None:
        listings = _Quiet()
        async with asyncio.timeout(5):
            await asyncio.gather(*(listings.refresh_exchange_tools_if_unknown(X(), "new") for _ in range(50)))  # type: ignore[arg-type]

    asyncio.run(look())


def test_agents_whose_names_no_header_holds_are_told_apart() -> None:
    names = ("\u0430\u0431", "\u0432\u0433", "??", "\udcff")
    assert len({hash_agent_id_for_stdio(name) for name in names}) == len(names)
    assert all(hash_agent_id_for_stdio(name).isascii() for name in names)


def test_a_call_has_an_end_before_it_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_calls, "STARTS_WITHIN", timedelta(seconds=0.05))
    none: Any = None
    runner = ApprovedCallRunner(none, none, none, none, gate=none, notes=none)
    server = UpstreamServer("s", None, call_seconds=0)
    monkeypatch.setattr(runner, "send_approved_call", lambda *_: asyncio.Event().wait())

    async def run() -> None:
        exchange = SimpleNamespace(server=server, call_seconds=0, call_timeouts=CallTimeouts())
        with pytest.raises(UpstreamFailed) as failed:
            await runner.send_call_within_deadline(cast(Any, exchange), b"{}", None)
        assert failed.value.may_have_run

    asyncio.run(run())
    assert gateway_calls.max_call_duration(server) > timedelta(seconds=0.05)
