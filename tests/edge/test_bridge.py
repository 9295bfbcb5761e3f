"""The bridge hands requests to a WSGI application faithfully, and never lets a client hold a thread."""

from __future__ import annotations

import asyncio
import contextlib
import io
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pytest

from coordinator.edge.http.bridge import DjangoBridge
from coordinator.edge.http.client_addresses import get_client_address_and_scheme
from coordinator.edge.http.concurrency import ConcurrencyLimit

Environ = dict[str, Any]


def scope_of(
    method: str = "GET",
    path: bytes = b"/",
    headers: Iterable[tuple[bytes, bytes]] = (),
    client: str = "10.0.0.9",
    query: bytes = b"",
) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path.decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "headers": list(headers),
        "client": (client, 1234),
        "server": ("127.0.0.1", 8765),
        "scheme": "http",
        "http_version": "1.1",
    }


class Client:
    """Plays the server's side of ASGI: gives a body in parts, keeps what is sent, may go away."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts) or [b""]
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.accepting = asyncio.Event()
        self.accepting.set()

    async def receive(self) -> dict[str, Any]:
        if self.parts:
            part = self.parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self.parts)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        await self.accepting.wait()
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


def echo(keep: dict[str, Any]) -> Callable[..., list[bytes]]:
    """A WSGI application that keeps its environ and answers with the body it was given."""

    def application(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
        keep.update(environ)
        start_response(
            "200 OK", [("Content-Type", "text/plain"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
        )
        return [environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"] or 0))]

    return application


class Streamed:
    """A streamed answer like Django's: iterable, `streaming`, and closed exactly once."""

    streaming = True

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks = chunks
        self.closed = threading.Event()
        self.threads: set[str] = set()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            self.threads.add(threading.current_thread().name)
            yield chunk

    def close(self) -> None:
        self.closed.set()


def streaming(answer: Streamed, *headers: tuple[str, str]) -> Callable[..., Streamed]:
    def application(_environ: Environ, start_response: Callable[..., Any]) -> Streamed:
        start_response("200 OK", list(headers))
        return answer

    return application


@contextlib.asynccontextmanager
async def whole(_scope: dict[str, Any], receive: Callable[[], Any]) -> AsyncIterator[io.BytesIO]:
    """Take a body in, without limits (those: tests/bodies)."""
    message = await receive()
    body = message["body"]
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    yield io.BytesIO(body)


async def nobody(_scope: dict[str, Any]) -> str:
    return "address:10.0.0.9"


def ask(application: Any, scope: dict[str, Any], *parts: bytes) -> Client:
    """Send one request through a fresh bridge and return the client with the answer."""

    async def run() -> Client:
        client = Client(*parts)
        bridge = DjangoBridge(application, threads=2, take=whole, who=nobody)
        try:
            await bridge(scope, client.receive, client.send)
        finally:
            bridge.close()
        return client

    return asyncio.run(run())


def test_body_sent_in_parts_arrives_whole() -> None:
    client = ask(echo({}), scope_of("POST"), b"one ", b"two ", b"three")
    assert (client.status, client.body) == (200, b"one two three")


def test_repeated_answer_headers_stay_apart() -> None:
    client = ask(echo({}), scope_of())
    cookies = [value for name, value in client.sent[0]["headers"] if name == b"set-cookie"]
    assert cookies == [b"a=1", b"b=2"]


def test_repeated_request_headers_are_joined_and_cookies_with_a_semicolon() -> None:
    environ: Environ = {}
    headers = [(b"accept", b"a/b"), (b"accept", b"c/d"), (b"cookie", b"x=1"), (b"Cookie", b"y=2")]
    ask(echo(environ), scope_of(headers=headers))
    assert (environ["HTTP_ACCEPT"], environ["HTTP_COOKIE"]) == ("a/b,c/d", "x=1; y=2")


def test_header_names_with_an_underscore_are_dropped() -> None:
    environ: Environ = {}
    ask(echo(environ), scope_of(headers=[(b"x_api_key", b"forged"), (b"x-api-key", b"real")]))
    assert environ["HTTP_X_API_KEY"] == "real"


@pytest.mark.parametrize("path", [b"/caf%C3%A9", "/café".encode(), b"/%ff%fe", b"/a%2Fb"])
def test_path_makes_the_round_trip_byte_for_byte(path: bytes) -> None:
    environ: Environ = {}
    ask(echo(environ), scope_of(path=path))
    from urllib.parse import unquote_to_bytes

    assert environ["PATH_INFO"].encode("latin-1") == unquote_to_bytes(path)


def test_query_string_is_not_part_of_the_path() -> None:
    environ: Environ = {}
    ask(echo(environ), scope_of(path=b"/x?a=1", query=b"a=1"))
    assert (environ["PATH_INFO"], environ["QUERY_STRING"]) == ("/x", "a=1")


def test_forwarding_headers_of_a_stranger_are_dropped(settings: Any) -> None:
    settings.TRUSTED_PROXIES = ["10.1.0.0/16"]
    environ: Environ = {}
    headers = [(b"x-forwarded-proto", b"https"), (b"x-forwarded-for", b"1.2.3.4")]
    ask(echo(environ), scope_of(headers=headers, client="10.2.0.1"))
    assert environ["REMOTE_ADDR"] == "10.2.0.1"
    assert environ["wsgi.url_scheme"] == "http"
    assert "HTTP_X_FORWARDED_PROTO" not in environ


def test_trusted_proxy_names_the_client_and_its_scheme(settings: Any) -> None:
    settings.TRUSTED_PROXIES = ["10.1.0.0/16"]
    headers = [(b"x-forwarded-proto", b"https"), (b"x-forwarded-for", b"6.6.6.6, 1.2.3.4, 10.1.0.2")]
    peer = get_client_address_and_scheme(scope_of(headers=headers, client="10.1.0.1"))
    assert (peer.address, peer.scheme) == ("1.2.3.4", "https")


def test_head_gets_the_headers_without_a_body() -> None:
    client = ask(echo({}), scope_of("HEAD"), b"ignored")
    assert (client.status, client.body) == (200, b"")


def test_client_that_leaves_while_queued_reaches_no_thread() -> None:
    busy, free = threading.Event(), threading.Event()
    seen: list[str] = []

    def application(environ: Environ, start_response: Callable[..., Any]) -> list[bytes]:
        seen.append(environ["PATH_INFO"])
        busy.set()
        free.wait(60)
        start_response("200 OK", [])
        return [b""]

    async def run() -> None:
        bridge = DjangoBridge(application, threads=1, take=whole, who=nobody)
        first, second = Client(), Client()
        one = asyncio.create_task(bridge(scope_of(path=b"/first"), first.receive, first.send))
        await asyncio.to_thread(busy.wait, 5)
        two = asyncio.create_task(bridge(scope_of(path=b"/second"), second.receive, second.send))
        while len(bridge.request_limit) < 2 or second.parts:
            await asyncio.sleep(0)
        second.gone.set()
        for _turn in range(10):
            await asyncio.sleep(0)
        free.set()
        await asyncio.gather(one, two)
        assert (first.status, second.sent) == (200, [])

    asyncio.run(run())
    assert seen == ["/first"]


@pytest.mark.parametrize("why", ["full", "stopping"])
def test_who_finds_the_queue_full_or_the_server_stopping_is_told_to_come_back(why: str) -> None:
    async def run() -> Client:
        bridge = DjangoBridge(echo({}), threads=1, take=whole, who=nobody)
        if why == "full":
            bridge.request_limit = ConcurrencyLimit(0, "requests")
        else:
            bridge.close()
        client = Client()
        await bridge(scope_of(), client.receive, client.send)
        return client

    client = asyncio.run(run())
    assert client.status == 503
    assert int(client.headers[b"retry-after"]) >= 1


def test_answer_is_closed_when_the_application_fails_half_way() -> None:
    class Failing:
        closed = False

        def __iter__(self) -> Iterator[bytes]:
            yield b"half"
            raise RuntimeError("the other half")

        def close(self) -> None:
            self.closed = True

    answer = Failing()

    def application(_environ: Environ, start_response: Callable[..., Any]) -> Failing:
        start_response("200 OK", [])
        return answer

    with pytest.raises(RuntimeError):
        ask(application, scope_of())
    assert answer.closed


def test_streamed_answer_goes_out_chunk_by_chunk_from_a_lane() -> None:
    answer = Streamed(iter([b"a", b"b", b"c"]))
    client = ask(streaming(answer), scope_of())
    assert [message.get("body") for message in client.sent[1:]] == [b"a", b"b", b"c", b""]
    assert all(name.startswith("lane") for name in answer.threads)
    assert answer.closed.is_set()


def test_small_file_is_sent_whole_without_a_lane() -> None:
    answer = Streamed(iter([b"a", b"b"]))
    client = ask(streaming(answer, ("Content-Length", "2")), scope_of())
    assert [message.get("body") for message in client.sent[1:]] == [b"ab"]
    assert all(name.startswith("django") for name in answer.threads)
    assert answer.closed.is_set()


def test_large_file_goes_by_a_lane() -> None:
    answer = Streamed(iter([b"x" * 700_000] * 2))
    client = ask(streaming(answer, ("Content-Length", "1400000")), scope_of())
    assert len(client.body) == 1_400_000
    assert all(name.startswith("lane") for name in answer.threads)


def test_slow_reader_holds_no_django_thread() -> None:
    async def run() -> None:
        answer = Streamed(iter([b"slow"]))
        bridge = DjangoBridge(streaming(answer), threads=1, take=whole, who=nobody)
        slow = Client()
        slow.accepting.clear()
        held = asyncio.create_task(bridge(scope_of(), slow.receive, slow.send))
        while not bridge.downloads.count:
            await asyncio.sleep(0)
        bridge.application = echo({})
        other = Client()
        await bridge(scope_of(), other.receive, other.send)
        assert other.status == 200
        slow.accepting.set()
        await held
        bridge.close()

    asyncio.run(run())


def test_stream_ends_and_is_closed_when_its_client_leaves() -> None:
    async def run() -> None:
        client = Client()
        left = threading.Event()

        def chunks() -> Iterator[bytes]:
            yield b"first"
            left.wait(60)
            while True:
                yield b"endless"

        answer = Streamed(chunks())
        bridge = DjangoBridge(streaming(answer), threads=1, take=whole, who=nobody)
        sending = asyncio.create_task(bridge(scope_of(), client.receive, client.send))
        while len(client.sent) < 2:
            await asyncio.sleep(0)
        client.gone.set()
        while not sending.done():
            left.set()
            await asyncio.sleep(0)
        assert answer.closed.is_set()
        bridge.close()

    asyncio.run(run())
