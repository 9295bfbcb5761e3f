"""HTTP/1.1 towards upstream servers: streamed, bounded in every direction, without redirects, kept alive.

Not a library's: one call of an MCP tool costs httpx about a millisecond of this process, which is all the time a
gateway may add. What is not understood ends the connection.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from coordinator.lib.internal_addresses import find_internal_packet_target, parse_ip_address
from coordinator.lib.network_words import describe_network_error
from coordinator.lib.sockets import has_unread_data
from coordinator.mcp.protocol.answer_limits import AnswerByteLimits, AnswerLimitExceeded, AnswerReservation

Headers = Sequence[tuple[str, str]]
PermissionRecheck = Callable[[], Awaitable[None]]  # raises where a request must not go out after all
CONNECT_WITHIN = 10.0
LOOK_HOLDS = 0.05  # seconds after which what was found before a request may have changed
MOST_HEAD = 64 * 1024  # bytes of an answer's status and headers
CHUNK = 64 * 1024
IDLE_CONNECTION_SECONDS = 4.0  # seconds for which a connection is used again: servers close theirs after five
MAX_IDLE_CONNECTIONS = 64  # idle connections to one server
NO_BODY = frozenset({204, 205, 304})


class UpstreamFailed(Exception):
    """The server cannot be reached, or its answer cannot be used. The text ends a sentence: "The server …".

    `may_have_run`: the request was sent, and what became of it is not known. `is_fault`: the server, or the way to it,
    is at fault.
    """

    is_fault = True

    def __init__(self, text: str, *, may_have_run: bool = False) -> None:
        super().__init__(text)
        self.may_have_run = may_have_run


class RequestNotSent(UpstreamFailed):
    """The request was not sent, by no fault of the server: a limit of ours is reached, or a person must sign in."""

    is_fault = False


class AnswerInterrupted(UpstreamFailed):
    """The connection ended in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """Where a server listens. `socket_path` is a Unix socket; `private` allows addresses of this network."""

    host: str
    port: int
    path: str
    tls: bool = False
    private: bool = False
    socket_path: str | None = None

    @property
    def connection_key(self) -> tuple[str, int, bool, str | None, bool]:
        return self.host, self.port, self.tls, self.socket_path, self.private


def parse_upstream_url(url: str, *, private: bool) -> UpstreamAddress:
    """Return where a URL points. Raises ValueError for what is no address of HTTP."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.password:
        raise ValueError("The address must be http(s)://host/path, without a user and password.")
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if any(ord(letter) <= 0x20 or ord(letter) > 0x7E for letter in path + parts.hostname):
        raise ValueError("The address contains characters that must be percent-encoded.")
    return UpstreamAddress(parts.hostname, parts.port or (443 if tls else 80), path, tls, private)


class HttpClient:
    """The connections of one process to all its upstream servers."""

    def __init__(self) -> None:
        self._idle: dict[object, deque[HttpConnection]] = {}
        # Made for the first address that wants it: reading the CAs takes its time.
        self._tls: ssl.SSLContext | None = None

    async def send_http_request(
        self,
        target: UpstreamAddress,
        method: str,
        headers: Headers,
        body: bytes = b"",
        *,
        within: float,
        recheck: PermissionRecheck | None = None,
    ) -> UpstreamAnswer:
        """Send a request and return its answer when its headers are there, within so many seconds.

        Where connecting took a moment nothing is sent before `recheck` has found that it still may be. Raises
        UpstreamFailed, and what `recheck` raises. Close the answer.
        """
        head = build_request_head(target, method, headers, body)
        connection = self.pop_reusable_idle_connection(target) or await self.connect_then_recheck_permission(
            target, recheck
        )
        try:
            async with asyncio.timeout(within):
                connection.writer.write(head + body)
                await connection.writer.drain()
                return await read_answer_head(self, target, connection, method)
        except TimeoutError:
            connection.close()
            error_text = f"did not answer within {within:.0f} seconds"
            raise UpstreamFailed(error_text, may_have_run=True) from None
        except (OSError, asyncio.IncompleteReadError) as problem:
            connection.close()
            error_text = (
                "closed the connection" if isinstance(problem, EOFError) else describe_network_error(problem)
            )
            raise UpstreamFailed(f"{error_text} before it answered", may_have_run=True) from None
        except BaseException:
            connection.close()
            raise

    def pop_reusable_idle_connection(self, target: UpstreamAddress) -> HttpConnection | None:
        idle = self._idle.get(target.connection_key)
        while idle:
            connection = idle.pop()
            if connection.is_reusable():
                return connection
            connection.close()
        return None

    def return_connection_to_pool(self, target: UpstreamAddress, connection: HttpConnection) -> None:
        """Keep a connection whose answer was read to its end."""
        idle = self._idle.setdefault(target.connection_key, deque())
        connection.idle_since = time.monotonic()
        while idle and (len(idle) >= MAX_IDLE_CONNECTIONS or not idle[0].is_reusable()):
            idle.popleft().close()
        idle.append(connection)

    def close(self) -> None:
        """Close what is idle."""
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()

    async def connect_then_recheck_permission(
        self, target: UpstreamAddress, recheck: PermissionRecheck | None
    ) -> HttpConnection:
        started_at = time.monotonic()
        connection = await self.connect_to_target(target)
        if recheck is not None and time.monotonic() - started_at > LOOK_HOLDS:
            try:
                await recheck()
            except BaseException:
                connection.close()
                raise
        return connection

    async def connect_to_target(self, target: UpstreamAddress) -> HttpConnection:
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                if target.socket_path is not None:
                    pair = await asyncio.open_unix_connection(target.socket_path, limit=MOST_HEAD)
                else:
                    pair = await self.connect_to_first_host_address(target)
        except TimeoutError:
            raise UpstreamFailed(f"could not be reached within {CONNECT_WITHIN:.0f} seconds") from None
        except (OSError, UnicodeError) as problem:
            raise UpstreamFailed(describe_network_error(problem)) from None
        return HttpConnection(*pair)

    async def connect_to_first_host_address(
        self, target: UpstreamAddress
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address that answers. The address that was looked at is the one connected to."""
        loop = asyncio.get_running_loop()
        address_rows = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address_row[4][0]) for address_row in address_rows))
        if not target.private and any(
            find_internal_packet_target(parse_ip_address(address)) for address in addresses
        ):
            raise UpstreamFailed(
                "has an address of a private network, which an admin must allow on the server's page"
            )
        if target.tls and self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        problem: OSError = ConnectionRefusedError()
        for address in addresses:
            try:
                return await asyncio.open_connection(
                    address,
                    target.port,
                    limit=MOST_HEAD,
                    ssl=self._tls if target.tls else None,
                    server_hostname=target.host if target.tls else None,
                )
            except OSError as failure:
                problem = failure
        raise problem


@dataclass(slots=True)
class HttpConnection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float = 0.0

    def is_reusable(self) -> bool:
        """Say whether it may be used again. What is sent over a closed one may have run, and is not sent again."""
        silent = not self.reader.at_eof() and not self.writer.is_closing() and not self.reader._buffer  # type: ignore[attr-defined]
        is_young = time.monotonic() - self.idle_since < IDLE_CONNECTION_SECONDS
        return silent and is_young and not has_unread_data(self.writer)

    def close(self) -> None:
        self.writer.close()


@dataclass(slots=True)
class UpstreamAnswer:
    """An answer whose headers are there. `headers` are by lower-case name. Read it, then close it.

    What was read whole is there to be read again. What is in hand of it is counted in `share` until it is closed.
    """

    status: int
    headers: dict[str, str]
    _client: HttpClient
    _target: UpstreamAddress
    _connection: HttpConnection
    _length: int | None  # None: chunked, or until the connection ends
    _chunked: bool
    _goes_on: bool
    _ended: bool = field(default=False)
    _body: bytes | None = field(default=None)
    share: AnswerReservation = field(
        default_factory=lambda: AnswerByteLimits().create_answer_reservation("", "")
    )

    @property
    def media_type(self) -> str:
        """Return the media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def iterate_body(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises UpstreamFailed where it breaks off."""
        if self._body is not None:
            yield self._body
            return
        reader = self._connection.reader
        try:
            if self._chunked:
                async for piece in iterate_chunked_response_body(reader):
                    yield piece
            elif self._length is None:
                while piece := await reader.read(CHUNK):
                    yield piece
            else:
                async for piece in iterate_exact_bytes(reader, self._length):
                    yield piece
        except (OSError, EOFError, asyncio.LimitOverrunError) as problem:
            error_text = (
                describe_network_error(problem) if isinstance(problem, OSError) else "closed the connection"
            )
            raise AnswerInterrupted(f"{error_text} in the middle of its answer", may_have_run=True) from None
        self._ended = True

    async def read_whole_body(self, most: int) -> bytes:
        """Return the whole body. Raises UpstreamFailed where it breaks off, or is longer than `most` bytes."""
        body = bytearray()
        async for piece in self.iterate_body():
            self.reserve_answer_bytes(len(piece))
            body += piece
            if len(body) > most:
                raise UpstreamFailed(f"answered with more than {most} bytes", may_have_run=True)
        self._body = bytes(body)
        return self._body

    def reserve_answer_bytes(self, more: int) -> None:
        """Count bytes of the answer that stay in hand. Raises UpstreamFailed where there is no room for them."""
        try:
            self.share.grow_answer_reservation(more)
        except AnswerLimitExceeded as problem:
            refusal_text = f"sent an answer for which there is no room now: {problem}"
            raise UpstreamFailed(refusal_text, may_have_run=True) from None

    def close(self) -> None:
        """Give the connection back where the answer was read to its end, else end it."""
        self.share.release_answer_reservation()
        if self._ended and self._goes_on:
            self._client.return_connection_to_pool(self._target, self._connection)
        else:
            self._connection.close()


def build_request_head(target: UpstreamAddress, method: str, headers: Headers, body: bytes) -> bytes:
    host = target.host if ":" not in target.host else f"[{target.host}]"
    port = "" if target.port == (443 if target.tls else 80) else f":{target.port}"
    lines = [f"{method} {target.path} HTTP/1.1", f"Host: {host}{port}", "Accept-Encoding: identity"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line or "\x00" in line for line in lines):
        raise UpstreamFailed("cannot be asked: a header holds a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


async def read_answer_head(
    client: HttpClient, target: UpstreamAddress, connection: HttpConnection, method: str
) -> UpstreamAnswer:
    status, lines = 100, list[bytes]()
    while 100 <= status < 200:
        try:
            head = await connection.reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise UpstreamFailed("sent more than 64 KiB of headers", may_have_run=True) from None
        lines = head[:-4].split(b"\r\n")
        status = parse_status_code(lines[0])
    headers = parse_answer_headers(lines[1:])
    if headers.get("content-encoding", "identity").lower() not in {"identity", ""}:
        raise UpstreamFailed("compressed its answer, although it was asked not to", may_have_run=True)
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    if not chunked and "transfer-encoding" in headers:
        raise UpstreamFailed("sent its answer in an unknown transfer encoding", may_have_run=True)
    length = None if chunked else expected_body_length_or_none(headers, status, method)
    goes_on = lines[0].startswith(b"HTTP/1.1") and "close" not in headers.get("connection", "").lower()
    goes_on = goes_on and (chunked or length is not None)
    return UpstreamAnswer(status, headers, client, target, connection, length, chunked, goes_on)


def parse_status_code(line: bytes) -> int:
    parts = line.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit() or len(parts[1]) != 3:
        raise UpstreamFailed("does not speak HTTP", may_have_run=True)
    return int(parts[1])


def parse_answer_headers(lines: Sequence[bytes]) -> dict[str, str]:
    header_values: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or name != name.strip() or not name:
            raise UpstreamFailed("sent headers that cannot be read", may_have_run=True)
        key, text = name.decode("latin-1").lower(), value.strip().decode("latin-1")
        if header_values.get(key, text) != text and key in {"content-length", "transfer-encoding"}:
            raise UpstreamFailed("gave two lengths for its answer", may_have_run=True)
        header_values[key] = text
    return header_values


def expected_body_length_or_none(headers: dict[str, str], status: int, method: str) -> int | None:
    if status in NO_BODY or method == "HEAD":
        return 0
    content_length = headers.get("content-length")
    if content_length is None:
        return None
    if not (content_length.isascii() and content_length.isdigit()) or len(content_length) > 18:
        raise UpstreamFailed("gave an invalid length for its answer", may_have_run=True)
    return int(content_length)


async def iterate_chunked_response_body(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readuntil(b"\r\n")
        size_text = line.partition(b";")[0].strip()
        if not size_text or len(size_text) > 15 or size_text.strip(b"0123456789abcdefABCDEF"):
            raise EOFError
        size = int(size_text, 16)
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return
        async for piece in iterate_exact_bytes(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise EOFError


async def iterate_exact_bytes(reader: asyncio.StreamReader, left: int) -> AsyncIterator[bytes]:
    """Yield so many bytes, in pieces as they come. Raises EOFError where there are fewer."""
    while left:
        piece = await reader.read(min(CHUNK, left))
        if not piece:
            raise EOFError
        left -= len(piece)
        yield piece
