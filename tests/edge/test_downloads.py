"""One key's slow downloads leave lanes for everybody else, and a reader who hardly reads is cut off."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from coordinator.edge.http import bridge as bridge_module
from coordinator.edge.http import downloads as module
from coordinator.edge.http.bridge import DjangoBridge
from coordinator.edge.http.downloads import LANES_EACH, WAITING_EACH, DownloadPool, DownloadReaderSpeed
from coordinator.errors import TooManyRequests
from tests.edge.test_bridge import Client, Streamed, scope_of, streaming, whole
from tests.live.connections import connect, make_session, message, post
from tests.served import Served


def of(sender: str) -> Callable[[], Awaitable[str]]:
    async def who() -> str:
        return sender

    return who


def test_a_hundred_slow_downloads_of_one_key_leave_lanes_for_others() -> None:
    async def run() -> Any:
        downloads, go_on, begun = DownloadPool(), threading.Event(), []

        def slow() -> None:
            begun.append(1)
            go_on.wait(60)

        greedy = [asyncio.create_task(downloads.run_download(of("key:1"), slow)) for _ in range(100)]
        done, _ = await asyncio.wait(greedy, timeout=0.1)
        others = []
        for sender in ("key:2", "person:1", "address:a"):
            await asyncio.wait_for(downloads.run_download(of(sender), lambda: others.append(1)), 5)
        found = len(begun), [type(task.exception()) for task in done], len(others)
        go_on.set()
        await asyncio.gather(*greedy, return_exceptions=True)
        downloads.close()
        return *found, downloads.count, downloads._downloads_by_sender

    begun, refused, others, left, shares = asyncio.run(run())
    assert (begun, others) == (LANES_EACH, 3)
    assert refused == [TooManyRequests] * (100 - LANES_EACH - WAITING_EACH)
    assert (left, shares) == (0, {})


def test_a_download_that_begins_as_the_server_stops_is_told_to_come_back() -> None:
    async def run() -> Client:
        answer = streaming(Streamed(iter([b"x"])))
        bridge = DjangoBridge(answer, threads=1, take=whole, who=lambda _scope: of("key:1")())
        bridge.downloads.close()
        client = Client()
        await bridge(scope_of(), client.receive, client.send)
        bridge.close()
        return client

    client = asyncio.run(run())
    assert client.sent[0]["status"] == 503
    assert (b"retry-after", b"1") in client.sent[0]["headers"]


def test_a_reader_below_the_slowest_pace_is_too_slow_only_after_the_grace() -> None:
    pace = DownloadReaderSpeed()
    pace.record_chunk_time(module.GRACE, 0)
    assert not pace.is_reader_too_slow
    pace.record_chunk_time(1, 1000)
    assert pace.is_reader_too_slow
    pace.record_chunk_time(1, 10**9)
    assert not pace.is_reader_too_slow


def test_a_reader_who_stops_reading_gives_its_lane_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "GRACE", 0.05)

    def chunks() -> Iterator[bytes]:
        while True:
            yield b"x"

    async def run() -> Streamed:
        answer = Streamed(chunks())
        bridge = DjangoBridge(streaming(answer), threads=1, take=whole, who=lambda _: of("key:1")())
        stuck = Client()
        stuck.accepting.clear()
        await asyncio.wait_for(bridge(scope_of(), stuck.receive, stuck.send), 5)
        bridge.close()
        return answer

    assert asyncio.run(run()).closed.is_set()


@pytest.mark.served
def test_slow_exports_of_one_person_leave_the_others_theirs(serve: Callable[..., Served]) -> None:
    served = serve(workers=1)
    make_session(served, "ses_1")
    batch = [message("ses_1", "x" * 2_000) for _ in range(5_000)]  # more than all buffers on the way hold
    assert post(connect(served), "/api/events", batch)[0] == 200
    path, greedy = "/ui/sessions/ses_1/-/export.ndjson", served.sign_in("viewer")
    cookie = "; ".join(f"{name}={value}" for name, value in greedy.cookies.items())
    lines = []
    for _ in range(60):
        connection = connect(served)
        assert connection.sock is not None
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.request("GET", path, headers={"Cookie": cookie})
        lines.append(connection)
    statuses = Counter(line.getresponse().status for line in lines[-60 + LANES_EACH + WAITING_EACH + 5 :])
    assert set(statuses) <= {429, 200}
    assert statuses[429]
    assert len(served.sign_in("approver").get(path).text.splitlines()) >= 5_000
    for line in lines:
        line.close()
