"""A request that is refused before its body was read: the answer arrives, and the connection goes on or is closed."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from tests.patience import PATIENCE
from tests.served import Served

pytestmark = pytest.mark.served

DOORS = ("/sessions/x/events", "/api/events", "/v1/logs", "/hooks/claude-code", "/api/access/check")


@pytest.fixture(scope="module")
def served(one_server: Served) -> Served:
    return one_server.emptied()


def opened(served: Served) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def answer_of(connection: socket.socket) -> tuple[int, bytes]:
    """Read one whole answer; return its status and its head."""
    got = b""
    while b"\r\n\r\n" not in got:
        piece = connection.recv(65536)
        assert piece, f"closed without an answer: {got!r}"
        got += piece
    told, _, body = got.partition(b"\r\n\r\n")
    length = int(told.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return int(told.split()[1]), told.lower()


@pytest.mark.parametrize("path", DOORS)
def test_a_body_that_comes_after_the_refusal_leaves_the_connection_fit_for_use(
    served: Served, path: str
) -> None:
    body = b"x" * 50_000
    with opened(served) as connection:
        for _ in range(3):
            connection.sendall(head(path, f"Content-Length: {len(body)}"))
            status, told = answer_of(connection)
            assert (status, b"connection: close" in told) == (401, False)
            connection.sendall(body)


@pytest.mark.parametrize("length", ["Content-Length: 20000000", "Transfer-Encoding: chunked"])
def test_who_still_sends_a_long_body_gets_the_answer_and_is_told_that_it_is_the_last(
    served: Served, length: str
) -> None:
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with opened(served) as connection:
        connection.sendall(head("/api/events", length))
        for _ in range(120):
            connection.sendall(piece)
        status, told = answer_of(connection)
    assert status == 401
    assert b"connection: close" in told


def test_a_body_without_an_end_is_not_read_for_ever(served: Served) -> None:
    with opened(served) as connection:
        connection.sendall(head("/api/events", "Transfer-Encoding: chunked"))
        began = time.monotonic()
        assert answer_of(connection)[0] == 401
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < PATIENCE:
                connection.sendall(b"1\r\nx\r\n")
                time.sleep(0.05)
        assert time.monotonic() - began < 8


def test_who_asks_before_sending_is_answered_and_the_connection_ends(served: Served) -> None:
    with opened(served) as connection:
        connection.sendall(head("/api/events", "Content-Length: 1000", "Expect: 100-continue"))
        status, told = answer_of(connection)
        assert (status, b"connection: close" in told) == (401, True)


@pytest.mark.parametrize("kept", [True, False])
def test_of_two_thousand_early_refusals_every_one_arrives(served: Served, kept: bool) -> None:
    body, connection = b"y" * 20_000, opened(served)
    more = () if kept else ("Connection: close",)
    for number in range(2000):
        connection.sendall(head(DOORS[number % len(DOORS)], f"Content-Length: {len(body)}", *more))
        connection.sendall(body)
        assert answer_of(connection)[0] in {401, 429}
        if not kept:
            connection.close()
            connection = opened(served)
    connection.close()
