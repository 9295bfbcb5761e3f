"""Raw HTTP connections to a chosen worker of a served program, and streams that are read as they come."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE
from tests.served import KEYS, Served


def bearer(key: str = "all") -> dict[str, str]:
    """Return the header that carries a test key."""
    return {"Authorization": f"Bearer {KEYS[key]}"}


def worker_of(served: Served, client_port: int) -> int | None:
    """Return the process id of the worker that has accepted the connection from `client_port`."""
    ends = f":{served.port:04X} ", f":{client_port:04X} "
    inode = None
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote = f"{line.split()[1]} ", f"{line.split()[2]} "
        if local.endswith(ends[0]) and remote.endswith(ends[1]):
            inode = line.split()[9]
    for pid in served.worker_pids():
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(handle.readlink()) == f"socket:[{inode}]":
                    return pid
    return None


def connect(
    served: Served, *, to: int | None = None, other_than: int | None = None
) -> http.client.HTTPConnection:
    """Open a connection, if asked to a certain worker: the kernel spreads them, so we try until it fits."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
        connection.connect()
        if to is None and other_than is None:
            return connection
        connection.request("GET", "/health")  # until it is accepted, it belongs to nobody
        connection.getresponse().read()
        pid = worker_of(served, connection.sock.getsockname()[1])
        if pid is not None and pid in (to, pid if to is None else to) and pid != other_than:
            return connection
        connection.close()
    raise AssertionError("no connection to that worker")


def post(connection: http.client.HTTPConnection, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    """POST JSON (or bytes as they are) with the test key; return the status and the decoded answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, data, bearer() | {k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    text = answer.read()
    return answer.status, json.loads(text) if text else None


@dataclass(frozen=True)
class Frame:
    """One server-sent event."""

    id: str
    event: str
    data: Any

    @property
    def change_id(self) -> int:
        """The change id that the frame's id begins with."""
        return int(self.id.partition("-")[0])


class Stream:
    """An open event stream, read in a thread. `frames` grows; `ended` is set when the server has closed it."""

    def __init__(
        self, served: Served, path: str = "/sse/sessions", *, to: int | None = None, **headers: str
    ) -> None:
        self.frames: list[Frame] = []
        self.comments: list[str] = []
        self.ended = threading.Event()
        self._news = threading.Condition()
        self._connection = connect(served, to=to)
        sent = bearer() | {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", path, headers=sent)
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.headers = self._answer.headers
        self.worker = (
            worker_of(served, self._connection.sock.getsockname()[1]) if self._connection.sock else None
        )
        if self.status == 200:
            threading.Thread(target=self._read, daemon=True).start()
        else:  # refused, as by a worker that is about to stop
            self.ended.set()

    def _read(self) -> None:
        fields: dict[str, str] = {}
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            while line := self._answer.readline().decode():
                name, _, value = line.rstrip("\n").partition(": ")
                if line.startswith(":"):
                    self.comments.append(line.strip(": \n"))
                elif name:
                    fields[name] = value
                elif fields:
                    self._add(Frame(fields.get("id", ""), fields["event"], json.loads(fields["data"])))
                    fields = {}
        self.ended.set()
        with self._news:
            self._news.notify_all()

    def _add(self, frame: Frame) -> None:
        with self._news:
            self.frames.append(frame)
            self._news.notify_all()

    def wait(self, done: Callable[[list[Frame]], Any], within: float = PATIENCE) -> Any:
        """Return what `done(frames)` returns once that is true; fails with what came instead."""
        with self._news:
            if self._news.wait_for(lambda: done(self.frames) or self.ended.is_set(), within) and done(
                self.frames
            ):
                return done(self.frames)
        raise AssertionError(f"in vain after {len(self.frames)} frames, the last: {self.frames[-3:]}")

    def events(self) -> list[Any]:
        """Return the recorded events that came, in order."""
        return [frame.data["data"] for frame in list(self.frames) if frame.event == "event"]

    @property
    def last_id(self) -> str:
        """The id that a reconnecting client would send."""
        return next(frame.id for frame in reversed(self.frames) if frame.id)

    def close(self) -> None:
        """Go away."""
        with contextlib.suppress(OSError):
            if self._connection.sock is not None:
                self._connection.sock.shutdown(
                    socket.SHUT_RDWR
                )  # frees the reading thread, which then closes
        self.ended.wait(PATIENCE)
        self._connection.close()


def message(session_id: str, text: str) -> dict[str, Any]:
    """Return a message event as an executor sends it."""
    return {
        "event_type": "message",
        "session_id": session_id,
        "timestamp": "2026-03-01T10:00:00.000000+00:00",
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
    }


def text_of(event: dict[str, Any]) -> str:
    """Return the text of a message event."""
    return str(event["content"][0]["text"])


def make_session(served: Served, session_id: str) -> None:
    """Insert a running session, as another program would."""
    served.sql(
        "INSERT INTO sessions (session_id, status, created_at) VALUES (?, 'running', ?)",
        (session_id, datetime.now(UTC).isoformat()),  # one of long ago would be shown as idle
    )
