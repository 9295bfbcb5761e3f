"""What anybody can send who only reaches the port: everybody else goes on as if it were not there."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.lib.body_limits import STRANGER
from tests.live.connections import connect, make_session, message, post
from tests.patience import PATIENCE
from tests.served import KEYS, Served

pytestmark = pytest.mark.served

FORM = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
HALF = {
    "announced": FORM % b"/ui/sign-in/" + b"Content-Length: 1000\r\n\r\na=",
    "chunked": FORM % b"/runs" + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    "headers only": b"GET /ui/sign-in/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\r\n",
    "nothing": b"",
}


@contextlib.contextmanager
def half_sent(served: Served, what: bytes, count: int) -> Iterator[list[socket.socket]]:
    lines = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(count)]
    for line in lines:
        line.sendall(what)
    try:
        yield lines
    finally:
        for line in lines:
            line.close()


def sign_in_slowly(served: Served) -> int:
    """Post the form as a browser may: its headers, and a moment later its body."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as line:
        line.sendall(FORM % b"/ui/sign-in/" + b"Content-Length: 3\r\n\r\n")
        time.sleep(0.2)
        line.sendall(b"a=b")
        return int(line.recv(100).split()[1])


@pytest.mark.parametrize("what", HALF.values(), ids=HALF)
def test_half_sent_requests_of_a_stranger_hinder_nobody(one_server: Served, what: bytes) -> None:
    make_session(one_server, f"ses_{abs(hash(what))}")
    with half_sent(one_server, what, 400):
        for _ in range(6):
            connection = connect(one_server)
            connection.request("GET", "/ui/sign-in/")
            assert connection.getresponse().status == 200
        assert sign_in_slowly(one_server) == 403  # it lacks its CSRF token, which only Django can know
        session = f"ses_{abs(hash(what))}"
        assert post(connect(one_server), f"/sessions/{session}/events", message(session, "x"))[0] == 201


def test_a_stranger_who_sends_slowly_is_told_so(one_server: Served) -> None:
    with half_sent(one_server, HALF["announced"], 1) as (line,):
        line.settimeout(STRANGER.seconds + 10)
        began, answer = time.monotonic(), line.recv(1000)
        assert answer.split()[1] == b"408"
        assert b"connection: close" in answer.lower()
        assert STRANGER.seconds - 1 < time.monotonic() - began


def memory(served: Served) -> int:
    """The peak of the workers' memory, in MB."""
    peaks = [
        Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0] for pid in served.worker_pids()
    ]
    return max(map(int, peaks)) // 1024


LARGE = {
    "percent signs": (b"username=", b"%41", 8_000_000, "application/x-www-form-urlencoded"),
    "fields": (b"a=1", b"&a=1", 6_000_000, "application/x-www-form-urlencoded"),
    "a part's header": (b"--B\r\n", b"X: y\r\n", 4_000_000, "multipart/form-data; boundary=B"),
}


@pytest.mark.parametrize(("head", "part", "times", "kind"), LARGE.values(), ids=LARGE)
def test_a_large_form_of_a_stranger_takes_no_memory(
    one_server: Served, head: bytes, part: bytes, times: int, kind: str
) -> None:
    body = head + part * times
    before = memory(one_server)
    for path in ("/ui/sign-in/", "/ui/setup/", "/admin/login/", "/ui/chat/with/x/say/"):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection = connect(one_server)
            connection.request("POST", path, body, {"Content-Type": kind})
            assert connection.getresponse().status == 413
    assert memory(one_server) - before < 20


def test_a_key_s_half_sent_bodies_refuse_no_other_key_s(serve: Callable[..., Served]) -> None:
    served = serve(workers=1)
    make_session(served, "ses_1")

    head = (
        f"POST /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEYS['runner']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 19000000\r\n\r\n"
    ).encode()
    with half_sent(served, head, 40) as lines:
        for line in lines:
            line.settimeout(0.2)
            with contextlib.suppress(OSError):
                line.sendall(b"[" + b" " * 10_000_000)
        batch = [message("ses_1", "x" * 1_000_000) for _ in range(10)]
        status, answer = post(connect(served), "/api/events", batch)
        assert (status, answer["accepted"]) == (200, 10)
