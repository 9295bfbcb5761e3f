"""Answers of servers take a bounded part of the memory, for each caller, for each server and in all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coordinator.client import sse
from coordinator.edge.gateway import response_stream as line
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.upstreams import (
    MOST_ANSWER,
    UpstreamClient,
    iterate_upstream_sse_events,
    read_upstream_response_body,
)
from coordinator.lib import fair_queue as turns
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.protocol import answer_limits as answer_shares
from coordinator.mcp.protocol.http_client import UpstreamAddress, UpstreamAnswer, UpstreamFailed

pytestmark = pytest.mark.one_engine

MIB = 1024 * 1024
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class SlowServers:
    """Servers of one port that send `sent` and keep the rest of their answers to themselves."""

    def __init__(self, upstreams: UpstreamClient, port: int) -> None:
        self.upstreams, self.port = upstreams, port

    async def ask(self, server: str, caller: str) -> UpstreamAnswer:
        turns.CALLER.set(caller)
        target = UpstreamAddress("127.0.0.1", self.port, "/", private=True)
        return await self.upstreams.send_message_to_server(
            UpstreamServer(server, target), [], b"{}", session=None, caller="agent"
        )

    async def receive(self, server: str, caller: str, *, held: int) -> UpstreamAnswer:
        """Ask, and return the answer when so many bytes of it are in hand."""
        answer = await self.ask(server, caller)
        reading = asyncio.ensure_future(read_upstream_response_body(answer, MOST_ANSWER))
        while answer.share.size < held and not reading.done():
            await asyncio.sleep(0)
        if reading.done():
            answer.close()
            reading.result()
        return answer


def with_servers(sent: bytes, work: Callable[[SlowServers], Awaitable[Any]]) -> Any:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()

    async def main() -> Any:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
            upstreams = UpstreamClient(EdgeThreads(1))
            result = await work(SlowServers(upstreams, listening.sockets[0].getsockname()[1]))
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            return result

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_shares, "MAX_BYTES", 8 * MIB)


HALF_AN_ANSWER = HEAD % (4 * MIB) + b"x" * (2 * MIB)


def test_a_caller_s_answers_are_bounded_over_all_servers() -> None:
    async def work(servers: SlowServers) -> None:
        answers = [await servers.receive(name, "key:1", held=2 * MIB) for name in ("a", "b")]
        with pytest.raises(UpstreamFailed, match="no room now: the caller already receives") as problem:
            await servers.receive("c", "key:1", held=2 * MIB)
        assert problem.value.may_have_run
        answers.append(await servers.receive("c", "key:2", held=2 * MIB))
        for answer in answers:
            answer.close()

    with_servers(HALF_AN_ANSWER, work)


def test_a_server_s_answers_are_bounded_over_all_callers() -> None:
    async def work(servers: SlowServers) -> None:
        answers = [await servers.receive("a", f"key:{number}", held=2 * MIB) for number in (1, 2)]
        with pytest.raises(UpstreamFailed, match="other large answers of this server"):
            await servers.receive("a", "key:3", held=2 * MIB)
        answers.append(await servers.receive("b", "key:3", held=2 * MIB))
        for answer in answers:
            answer.close()

    with_servers(HALF_AN_ANSWER, work)


def test_a_small_answer_still_comes() -> None:
    async def work(servers: SlowServers) -> None:
        answers = [await servers.receive("a", "key:1", held=2 * MIB) for _ in range(2)]
        small = await servers.ask("a", "key:1")
        small.reserve_answer_bytes(60_000)
        for answer in [*answers, small]:
            answer.close()

    with_servers(HALF_AN_ANSWER, work)


def test_all_is_given_back() -> None:
    async def work(servers: SlowServers) -> tuple[bool, bool]:
        for _ in range(3):
            (await servers.receive("a", "key:1", held=2 * MIB)).close()
        shares = servers.upstreams.answers
        return bool(shares.by_caller), bool(shares.by_server)

    assert with_servers(HALF_AN_ANSWER, work) == (False, False)


def test_an_event_that_has_not_ended_is_counted_and_one_that_was_passed_on_is_not() -> None:
    event = b"data: " + b"x" * MIB + b"\n\n"

    async def work(servers: SlowServers) -> int:
        answer = await servers.ask("a", "key:1")
        stream = iterate_upstream_sse_events(answer)
        for _ in range(20):
            assert await anext(stream) == event
        rest = asyncio.ensure_future(anext(stream))
        while answer.share.size != 3 * MIB:
            await asyncio.sleep(0)
        rest.cancel()
        size = answer.share.size
        answer.close()
        return size

    assert with_servers(EVENTS + event * 20 + b"x" * (3 * MIB), work) == 3 * MIB


@pytest.mark.parametrize("line", [b"id\n", b"zz\n", b"data\r\n", b"a\r", b"retry\n"])
def test_an_event_of_more_lines_than_anybody_writes_is_refused_before_it_is_split(line: bytes) -> None:
    most = sse.MAX_LINES - 1  # and the empty one at the end
    (event,) = sse.EventSplitter().feed(line * most + line[-1:])
    assert event.count(line) == most
    with pytest.raises(sse.EventTooLong, match="more than 10000 lines"):
        sse.EventSplitter().feed(line * (most + 2) + line[-1:])


class UnreadLine:
    """A line whose client reads nothing until it is `read`."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.read = asyncio.Event()
        self.line = ResponseStream(self._send)

    async def _send(self, message: Any) -> None:
        self.sent.append(message.get("body", b""))
        if len(self.sent) == 2:
            await self.read.wait()


def test_answers_that_a_client_does_not_read_are_bounded_and_come_whole_once_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line, "MAX_UNREAD_BYTES", 9 * MIB)
    body = bytes(range(256)) * 8 * 1024 + b"end"

    async def main() -> None:
        turns.CALLER.set("key:1")
        unread = [UnreadLine() for _ in range(2)]
        sending = [asyncio.ensure_future(one.line.send_answer(body)) for one in unread]
        await asyncio.sleep(0)
        third = UnreadLine()
        with pytest.raises(UpstreamFailed, match="has not read other large answers") as problem:
            await third.line.send_answer(body)
        assert problem.value.may_have_run
        third.read.set()
        await third.line.send_answer(b"{}", 502)  # why, which is small, still comes
        assert third.sent[1:] == [b"{}"]
        turns.CALLER.set("key:2")
        other = UnreadLine()
        other.read.set()
        await other.line.send_answer(body)
        for one in unread:
            one.read.set()
        await asyncio.gather(*sending)
        assert all(b"".join(one.sent) == body for one in (*unread, other))
        assert max(map(len, other.sent)) <= line.PIECE

    asyncio.run(main())
    assert not line._unread
