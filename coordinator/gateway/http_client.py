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

from coordinator.gateway.answer_shares import AnswerShare, AnswerShares, NoRoom
from coordinator.lib.internal_addresses import find_internal, parse_address
from coordinator.lib.network_words import in_words
from coordinator.lib.sockets import has_unread

Headers = Sequence[tuple[str, str]]
Look = Callable[[], Awaitable[None]]  # raises where a request must not go out after all
CONNECT_WITHIN = 10.0
LOOK_HOLDS = 0.05  # seconds after which what was found before a request may have changed
MOST_HEAD = 64 * 1024  # bytes of an answer's status and headers
CHUNK = 64 * 1024
CONNECTION_KEPT_FOR = 4.0  # seconds for which a connection is used again: servers close theirs after five
MOST_KEPT = 64  # idle connections to one server
NO_BODY = frozenset({204, 205, 304})


class UpstreamFailed(Exception):
    """The server cannot be reached, or its answer cannot be used. The text ends a sentence: "The server …".

    `may_have_run`: the request was sent, and what became of it is not known.
    """

    def __init__(self, words: str, *, may_have_run: bool = False) -> None:
        super().__init__(words)
        self.may_have_run = may_have_run


class BrokenOff(UpstreamFailed):
    """The connection ended in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server listens. `socket_path` is a Unix socket; `private` allows addresses of this network."""

    host: str
    port: int
    path: str
    tls: bool = False
    private: bool = False
    socket_path: str | None = None

    @property
    def place(self) -> tuple[str, int, bool, str | None, bool]:
        return self.host, self.port, self.tls, self.socket_path, self.private


def target_of(url: str, *, private: bool) -> Target:
    """Return where a URL points. Raises ValueError for what is no address of HTTP."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.password:
        raise ValueError("The address must be http(s)://host/path, without a user and password.")
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if any(ord(letter) <= 0x20 or ord(letter) > 0x7E for letter in path + parts.hostname):
        raise ValueError("The address contains characters that must be percent-encoded.")
    return Target(parts.hostname, parts.port or (443 if tls else 80), path, tls, private)


class HttpClient:
    """The connections of one process to all its upstream servers."""

    def __init__(self) -> None:
        self._idle: dict[object, deque[_Connection]] = {}
        # Made for the first address that wants it: reading the CAs takes its time.
        self._tls: ssl.SSLContext | None = None

    async def request(
        self,
        target: Target,
        method: str,
        headers: Headers,
        body: bytes = b"",
        *,
        within: float,
        look: Look | None = None,
    ) -> UpstreamAnswer:
        """Send a request and return its answer when its headers are there, within so many seconds.

        Where connecting took a moment nothing is sent before `look` has found that it still may be. Raises
        UpstreamFailed, and what `look` raises. Close the answer.
        """
        head = _head(target, method, headers, body)
        connection = self._kept(target) or await self._connected(target, look)
        try:
            async with asyncio.timeout(within):
                connection.writer.write(head + body)
                await connection.writer.drain()
                return await _answer(self, target, connection, method)
        except TimeoutError:
            connection.close()
            words = f"did not answer within {within:.0f} seconds"
            raise UpstreamFailed(words, may_have_run=True) from None
        except (OSError, asyncio.IncompleteReadError) as problem:
            connection.close()
            words = "closed the connection" if isinstance(problem, EOFError) else in_words(problem)
            raise UpstreamFailed(f"{words} before it answered", may_have_run=True) from None
        except BaseException:
            connection.close()
            raise

    def _kept(self, target: Target) -> _Connection | None:
        idle = self._idle.get(target.place)
        while idle:
            connection = idle.pop()
            if connection.is_fresh():
                return connection
            connection.close()
        return None

    def keep(self, target: Target, connection: _Connection) -> None:
        """Keep a connection whose answer was read to its end."""
        idle = self._idle.setdefault(target.place, deque())
        connection.idle_since = time.monotonic()
        while idle and (len(idle) >= MOST_KEPT or not idle[0].is_fresh()):
            idle.popleft().close()
        idle.append(connection)

    def close(self) -> None:
        """Close what is idle."""
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()

    async def _connected(self, target: Target, look: Look | None) -> _Connection:
        began = time.monotonic()
        connection = await self._connect(target)
        if look is not None and time.monotonic() - began > LOOK_HOLDS:
            try:
                await look()
            except BaseException:
                connection.close()
                raise
        return connection

    async def _connect(self, target: Target) -> _Connection:
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                if target.socket_path is not None:
                    pair = await asyncio.open_unix_connection(target.socket_path, limit=MOST_HEAD)
                else:
                    pair = await self._connect_to_host(target)
        except TimeoutError:
            raise UpstreamFailed(f"could not be reached within {CONNECT_WITHIN:.0f} seconds") from None
        except (OSError, UnicodeError) as problem:
            raise UpstreamFailed(in_words(problem)) from None
        return _Connection(*pair)

    async def _connect_to_host(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address that answers. The address that was looked at is the one connected to."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        if not target.private and any(find_internal(parse_address(address)) for address in addresses):
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
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float = 0.0

    def is_fresh(self) -> bool:
        """Say whether it may be used again. What is sent over a closed one may have run, and is not sent again."""
        silent = not self.reader.at_eof() and not self.writer.is_closing() and not self.reader._buffer  # type: ignore[attr-defined]
        is_young = time.monotonic() - self.idle_since < CONNECTION_KEPT_FOR
        return silent and is_young and not has_unread(self.writer)

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
    _target: Target
    _connection: _Connection
    _length: int | None  # None: chunked, or until the connection ends
    _chunked: bool
    _goes_on: bool
    _ended: bool = field(default=False)
    _whole: bytes | None = field(default=None)
    share: AnswerShare = field(default_factory=lambda: AnswerShares().hold("", ""))

    @property
    def kind(self) -> str:
        """Return the media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises UpstreamFailed where it breaks off."""
        if self._whole is not None:
            yield self._whole
            return
        reader = self._connection.reader
        try:
            if self._chunked:
                async for piece in _chunks(reader):
                    yield piece
            elif self._length is None:
                while piece := await reader.read(CHUNK):
                    yield piece
            else:
                async for piece in _exactly(reader, self._length):
                    yield piece
        except (OSError, EOFError, asyncio.LimitOverrunError) as problem:
            words = in_words(problem) if isinstance(problem, OSError) else "closed the connection"
            raise BrokenOff(f"{words} in the middle of its answer", may_have_run=True) from None
        self._ended = True

    async def body(self, most: int) -> bytes:
        """Return the whole body. Raises UpstreamFailed where it breaks off, or is longer than `most` bytes."""
        found = bytearray()
        async for piece in self.pieces():
            self.hold(len(piece))
            found += piece
            if len(found) > most:
                raise UpstreamFailed(f"answered with more than {most} bytes", may_have_run=True)
        self._whole = bytes(found)
        return self._whole

    def hold(self, more: int) -> None:
        """Count bytes of the answer that stay in hand. Raises UpstreamFailed where there is no room for them."""
        try:
            self.share.grow(more)
        except NoRoom as problem:
            words = f"sent an answer for which there is no room now: {problem}"
            raise UpstreamFailed(words, may_have_run=True) from None

    def close(self) -> None:
        """Give the connection back where the answer was read to its end, else end it."""
        self.share.close()
        if self._ended and self._goes_on:
            self._client.keep(self._target, self._connection)
        else:
            self._connection.close()


def _head(target: Target, method: str, headers: Headers, body: bytes) -> bytes:
    host = target.host if ":" not in target.host else f"[{target.host}]"
    port = "" if target.port == (443 if target.tls else 80) else f":{target.port}"
    lines = [f"{method} {target.path} HTTP/1.1", f"Host: {host}{port}", "Accept-Encoding: identity"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line or "\x00" in line for line in lines):
        raise UpstreamFailed("cannot be asked: a header holds a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


async def _answer(client: HttpClient, target: Target, connection: _Connection, method: str) -> UpstreamAnswer:
    status, lines = 100, list[bytes]()
    while 100 <= status < 200:
        try:
            head = await connection.reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise UpstreamFailed("sent more than 64 KiB of headers", may_have_run=True) from None
        lines = head[:-4].split(b"\r\n")
        status = _status(lines[0])
    headers = _headers(lines[1:])
    if headers.get("content-encoding", "identity").lower() not in {"identity", ""}:
        raise UpstreamFailed("compressed its answer, although it was asked not to", may_have_run=True)
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    if not chunked and "transfer-encoding" in headers:
        raise UpstreamFailed("sent its answer in an unknown transfer encoding", may_have_run=True)
    length = None if chunked else _length(headers, status, method)
    goes_on = lines[0].startswith(b"HTTP/1.1") and "close" not in headers.get("connection", "").lower()
    goes_on = goes_on and (chunked or length is not None)
    return UpstreamAnswer(status, headers, client, target, connection, length, chunked, goes_on)


def _status(line: bytes) -> int:
    parts = line.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit() or len(parts[1]) != 3:
        raise UpstreamFailed("does not speak HTTP", may_have_run=True)
    return int(parts[1])


def _headers(lines: Sequence[bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or name != name.strip() or not name:
            raise UpstreamFailed("sent headers that cannot be read", may_have_run=True)
        key, text = name.decode("latin-1").lower(), value.strip().decode("latin-1")
        if found.get(key, text) != text and key in {"content-length", "transfer-encoding"}:
            raise UpstreamFailed("gave two lengths for its answer", may_have_run=True)
        found[key] = text
    return found


def _length(headers: dict[str, str], status: int, method: str) -> int | None:
    if status in NO_BODY or method == "HEAD":
        return 0
    told = headers.get("content-length")
    if told is None:
        return None
    if not (told.isascii() and told.isdigit()) or len(told) > 18:
        raise UpstreamFailed("gave an invalid length for its answer", may_have_run=True)
    return int(told)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
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
        async for piece in _exactly(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise EOFError


async def _exactly(reader: asyncio.StreamReader, left: int) -> AsyncIterator[bytes]:
    """Yield so many bytes, in pieces as they come. Raises EOFError where there are fewer."""
    while left:
        piece = await reader.read(min(CHUNK, left))
        if not piece:
            raise EOFError
        left -= len(piece)
        yield piece
