"""Which of several workers a client's connection leads to, and clients that lead to another one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.gateway.agents import Wire
from tests.served import Served

MOST_TRIES = 200


def find_worker(box: Served, response: httpx.Response) -> int:
    """Return the process id of the worker that gave a response."""
    local = response.extensions["network_stream"].get_extra_info("socket").getsockname()[1]
    ours = f"0100007F:{box.port:04X} 0100007F:{local:04X}"
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inode = next(row[9] for row in table if f"{row[1]} {row[2]}" == ours)
    for pid in box.worker_pids():
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if link.is_symlink() and str(link.readlink()) == f"socket:[{inode}]":
                return pid
    raise AssertionError("no worker has this connection")


def sign_in_elsewhere(box: Served, pid: int, path: str) -> tuple[httpx.Client, str]:
    """Return a person's client whose connection leads to another worker than `pid`, and a page that it got there."""
    for _ in range(MOST_TRIES):
        person = box.sign_in("approver")
        answer = person.get(path)
        if find_worker(box, answer) != pid:
            return person, answer.text
        person.close()
    raise AssertionError("all connections lead to one worker")


def decide_elsewhere(box: Served, pid: int, request_id: str, verdict: str = "approved") -> None:
    """Decide as a person does whose browser is connected to another worker than `pid`."""
    person, page = sign_in_elsewhere(box, pid, f"/ui/approvals/{request_id}/")
    judged = re.findall(r'name="judged"\s+value="([^"]+)"', page)
    form = {"ids": [request_id], "judged": judged, "verdict": verdict, "scope": "call"}
    answer = person.post("/ui/approvals/decide/", data=form)
    assert answer.status_code == 200, answer.text


def post_elsewhere(
    wire: Wire, pid: int, make: Callable[[], httpx.Client], message: dict[str, object]
) -> None:
    """Post a message of the wire's session over a connection to another worker than `pid`."""
    for _ in range(MOST_TRIES):
        client = make()
        client.headers.update(wire.http.headers)
        if find_worker(wire.box, client.get("/health")) != pid:
            assert client.post(wire.path, json=message, headers=wire.headers_for(message)).status_code == 202
            return
        client.close()
    raise AssertionError("all connections lead to one worker")
