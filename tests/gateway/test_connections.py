"""Connections to upstream servers are used again, as long as their servers keep them."""

from __future__ import annotations

import asyncio
import socket
import threading

from coordinator.mcp.protocol.http_client import HttpClient, parse_upstream_url
from tests.patience import PATIENCE

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_a_connection_that_was_closed_a_moment_ago_is_not_used_again() -> None:
    assert connections_of_two_calls(closed=True) == 2


def test_a_connection_that_its_server_keeps_is_used_again() -> None:
    assert connections_of_two_calls(closed=False) == 1


def connections_of_two_calls(*, closed: bool) -> int:
    """Return how many connections two calls take. Between them the server may have closed its, unseen by the loop."""
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            accepted.append(connection)
            threading.Thread(target=answer, args=[connection], daemon=True).start()

    def answer(connection: socket.socket) -> None:
        while connection.recv(4096):
            connection.sendall(ANSWER)

    async def call_twice() -> None:
        client = HttpClient()
        target = parse_upstream_url(f"http://127.0.0.1:{listener.getsockname()[1]}/", private=True)
        for number in range(2):
            if number and closed:
                accepted[0].shutdown(socket.SHUT_RDWR)
            answered = await client.send_http_request(target, "POST", [], b"{}", within=PATIENCE)
            assert [piece async for piece in answered.iterate_body()] == [b"{}"]
            answered.close()
        client.close()

    threading.Thread(target=serve, daemon=True).start()
    asyncio.run(call_twice())
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for connection in accepted:
        connection.close()
    return len(accepted)
