"""SIGTERM lets go of what is held, at once: a runner gives up after three polls that failed within 3 s."""

from __future__ import annotations

import signal
import socket
import time

import pytest

from tests.live.connections import Stream, bearer, connect, make_session
from tests.served import Served

pytestmark = pytest.mark.served


@pytest.fixture
def served(one_server: Served) -> Served:
    """A server that only these tests stop, which is at work."""
    return one_server.emptied()


def held_poll(served: Served, pid: int, name: str) -> object:
    """Register a runner and leave its poll waiting on that worker; return the connection."""
    identity = {
        "hostname": name, "project_dir": "/x", "executor_profile": "p",
        "executor": {"type": "t", "command": "c", "config": {}},
    }  # fmt: skip
    runner = served.client().post("/runner/register", json=identity).json()["runner_id"]
    connection = connect(served, to=pid)
    connection.request("GET", f"/runner/runs?runner_id={runner}", headers=bearer())
    return connection


def test_held_polls_are_answered_and_streams_closed_at_once_and_whole(served: Served) -> None:
    """The promise is a restart within 3 s on a quiet machine; others may be at work here, so times are compared."""
    make_session(served, "ses_1")
    pids = served.all_worker_pids()
    polls = [held_poll(served, pid, f"host{pid}") for pid in pids]
    streams = [Stream(served, to=pid) for pid in pids]
    for stream in streams:
        stream.wait(lambda frames: frames)
    streams += [Stream(served) for _ in range(18)]
    idle = [connect(served, to=pid) for pid in pids]  # keep-alive connections that nobody uses
    assert served.process is not None
    began = time.monotonic()
    served.process.send_signal(signal.SIGTERM)
    for poll in polls:
        assert poll.getresponse().status == 204  # type: ignore[attr-defined]
    for stream in streams:
        assert stream.ended.wait(60)
    release_held_requests = time.monotonic() - began
    stopped = release_held_requests + served.stop()
    assert release_held_requests < 5, "a poll is held 30 s"
    assert stopped < 8, "idle connections held the server up"
    del idle
    assert "Traceback" not in served.output()
    assert "ERROR" not in served.output()
    began = time.monotonic()
    served.start()
    assert stopped < max(1.5, time.monotonic() - began), "stopping takes longer than starting"


def test_who_has_just_connected_as_a_server_stops_is_still_answered(served: Served) -> None:
    new = [socket.create_connection(("127.0.0.1", served.port), 60) for _ in range(4)]
    idle = [connect(served, to=pid) for pid in served.worker_pids()]  # all before them are taken by now
    assert served.process is not None
    served.process.send_signal(signal.SIGTERM)
    for connection in idle:
        assert connection.sock.recv(1) == b"", "closed as the worker begins to stop"
    for one in new:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    for one in new:
        assert one.recv(1_000).startswith(b"HTTP/1.1 200 ")
