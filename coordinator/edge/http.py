"""Reading requests and writing answers where there is no Django between: bodies, headers, JSON, errors."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import msgspec

from coordinator.edge.bridge import Receive, Scope, Send
from coordinator.errors import BadRequest, SignalboxError, TooLarge, Unsupported

Headers = dict[bytes, bytes]
_encoder = msgspec.json.Encoder(enc_hook=str)


class Gone(Exception):
    """The client closed the connection while we read."""


def headers_of(scope: Scope) -> Headers:
    """Return the headers by lower-case name; of a repeated one the last."""
    return dict(scope["headers"])


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """Return the whole body as it was sent. Raises TooLarge over `limit` bytes (unread if it says so), Gone."""
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"The body is larger than {limit} bytes.")
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return _within(body, limit)
    chunks, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise TooLarge(f"The body is larger than {limit} bytes.")
    return b"".join(chunks)


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise TooLarge(f"The body is larger than {limit} bytes.")
    return body


async def plain_body(body: bytes, headers: Headers, limit: int) -> bytes:
    """Return `body` without its Content-Encoding. Raises TooLarge beyond `limit` bytes, before it is unpacked."""
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding in {b"identity", b""}:
        return body
    if encoding not in {b"gzip", b"x-gzip"}:
        raise Unsupported("Send the body plain or with Content-Encoding: gzip.")
    return await asyncio.to_thread(gunzip, body, limit)


def gunzip(body: bytes, limit: int) -> bytes:
    """Unpack gzip; raises TooLarge as soon as it passes `limit` bytes, BadRequest where it is no gzip."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(body, limit + 1)
    except zlib.error:
        raise BadRequest("The body says gzip but is none.") from None
    if len(plain) > limit:
        raise TooLarge(f"The body unpacks to more than {limit} bytes.")
    if not unpacker.eof or unpacker.unused_data:
        raise BadRequest("The gzip body is cut short, or something follows it.")
    return plain


async def send_json(send: Send, status: int, value: Any, *extra: tuple[bytes, bytes]) -> None:
    """Answer with JSON; `value` may be bytes that are JSON already."""
    body = value if isinstance(value, bytes) else _encoder.encode(value)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *extra,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_empty(send: Send, status: int = 204) -> None:
    """Answer without a body."""
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_error(send: Send, error: SignalboxError) -> None:
    """Answer an expected error as every door does: its status and `{"detail": …}`."""
    extra = []
    if error.retry_after is not None:
        extra.append((b"retry-after", str(error.retry_after).encode()))
    if error.status == 401:
        extra.append((b"www-authenticate", b"Bearer"))
    if error.status in {408, 413}:
        extra.append((b"connection", b"close"))  # the rest of the body is not read
    await send_json(send, error.status, _error_body(error), *extra)


def _error_body(error: SignalboxError) -> bytes:
    try:
        return _encoder.encode({"detail": error.detail})
    except UnicodeEncodeError:  # it quotes a lone surrogate, which JSON can write as an escape alone
        return json.dumps({"detail": error.detail}, default=str).encode()
