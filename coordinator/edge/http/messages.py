"""Reading of headers and writing of JSON and error responses without Django."""

from __future__ import annotations

import functools
import json
from typing import Any
from urllib.parse import parse_qs

import msgspec

from coordinator.api.edge_operations import EdgeOperation
from coordinator.errors import ServiceBusy, SignalboxError
from coordinator.lib.asgi import Scope, Send

Headers = dict[bytes, bytes]
_HEADERS = "signalbox.headers"
OPERATION = "signalbox.operation"  # in the scope of a request that the edge answers
_encoder = msgspec.json.Encoder(enc_hook=str)


class ClientDisconnected(Exception):
    """The client closed the connection while we read."""


def get_request_headers(scope: Scope) -> Headers:
    """Return the headers by lower-case name; of a repeated one the last. Made once a request."""
    headers: Headers | None = scope.get(_HEADERS)
    if headers is None:
        headers = scope[_HEADERS] = dict(scope["headers"])
    return headers


@functools.lru_cache(maxsize=256)
def parse_query_string(query_string: bytes) -> dict[str, list[str]]:
    """Return the query's parameters by name, those with no value too. Machines send few queries, again and again."""
    return parse_qs(query_string.decode("latin-1"), keep_blank_values=True)


def get_edge_operation_of_request(scope: Scope) -> EdgeOperation:
    """Return the operation that the request is for, which says who may call it and how much it may be sent."""
    operation: EdgeOperation = scope[OPERATION]
    return operation


def header_texts_by_name(headers: Headers) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}


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


async def send_empty_response(send: Send, status: int = 204) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def build_database_unavailable_error() -> ServiceBusy:
    """Return the refusal of a request that met no database, or a busy one."""
    return ServiceBusy("The database is busy or cannot be reached. Try again.", retry_after=2)


async def send_error(send: Send, error: SignalboxError) -> None:
    """Answer an expected error as every endpoint does: its status and `{"detail": …}`."""
    extra = []
    if error.retry_after is not None:
        extra.append((b"retry-after", str(error.retry_after).encode()))
    if error.status == 401:
        extra.append((b"www-authenticate", b"Bearer"))
    if error.status in {408, 413}:
        extra.append((b"connection", b"close"))  # the rest of the body is not read
    if error.not_sent:
        extra.append((b"x-signalbox-not-sent", b"1"))  # `signalbox mcp` repeats a call on this word alone
    await send_json(send, error.status, encode_error_body(error), *extra)


def encode_error_body(error: SignalboxError) -> bytes:
    try:
        return _encoder.encode({"detail": error.detail})
    except UnicodeEncodeError:  # it quotes a lone surrogate, which JSON can write as an escape alone
        return json.dumps({"detail": error.detail}, default=str).encode()
