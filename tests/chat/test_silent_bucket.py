"""A bucket that falls silent keeps one request of a process waiting at a time, and ever more rarely."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from coordinator.chat.stores import StoreUnavailable, circuit_breaker, s3
from coordinator.chat.stores.circuit_breaker import StoreCircuitBreaker
from tests.s3 import CREDENTIALS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time, in seconds, which stands still until a test moves it."""
    told = SimpleNamespace(now=100.0)
    monkeypatch.setattr(circuit_breaker, "time", SimpleNamespace(monotonic=lambda: told.now))
    return told


def test_after_a_failure_one_asks_at_a_time_and_rests_grow(clock: SimpleNamespace) -> None:
    place = StoreCircuitBreaker()
    assert [place.acquire_request_turn_or_none(), place.acquire_request_turn_or_none()] != [None, None], (
        "all may ask while it answers"
    )
    for rest in (5, 10, 20, 40, 60, 60):
        place.open_after_missing_response()
        place.open_after_missing_response()  # another, who waited beside
        clock.now += rest - 1
        assert place.acquire_request_turn_or_none() is None
        clock.now += 1
        turn = place.acquire_request_turn_or_none()
        assert turn is not None
        assert place.acquire_request_turn_or_none() is None, "one asks already"
        place.release_request_turn(turn)
    place.record_success()
    assert None not in (place.acquire_request_turn_or_none(), place.acquire_request_turn_or_none())


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.Bucket]:
    """A bucket whose service sends half of a file, and then nothing more."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3, "ANSWER_WITHIN", 0.2)
    done = threading.Event()

    def answer(server: socket.socket) -> None:
        held = []
        while not done.is_set():
            try:
                line, _ = server.accept()
            except OSError:
                return
            held.append(line)
            line.recv(65536)
            line.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 20\r\n\r\n0123456789")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        yield s3.Bucket(
            bucket_name="box",
            location="here",
            endpoint_url=f"http://127.0.0.1:{server.getsockname()[1]}",
            region_name="us-east-1",
        )
        done.set()
        server.shutdown(socket.SHUT_RDWR)


def test_a_file_that_comes_to_a_halt_begins_a_rest_too(bucket: s3.Bucket) -> None:
    coming = bucket.open_byte_range("attachments/ab/f.bin", 0, 20)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        coming.read(20)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        bucket.open_byte_range("attachments/ab/f.bin", 0, 20)
