"""A webhook reaches nothing inside our networks, whatever its address says and whenever it says so."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.actions import notifications
from coordinator.actions.notifications import worker_pools as lanes
from coordinator.models import Notification
from coordinator.notifications import webhooks
from tests.approvals.factories import NOW, person
from tests.patience import AT_ONCE, PATIENCE

INTERNAL = [
    "127.0.0.1",
    "127.8.8.8",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "fec0::1",
]


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let every name resolve to these addresses; return the list of names that were looked up."""
    asked: list[str] = []

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(webhooks.socket, "getaddrinfo", look_up)
    return asked


@pytest.fixture
def no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(webhooks.socket, "create_connection", connect)


@pytest.mark.usefixtures("no_connection")
@pytest.mark.parametrize("address", INTERNAL)
def test_a_name_that_leads_inside_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    resolving(monkeypatch, address)
    with pytest.raises(webhooks.WebhookAddressRefused, match="SIGNALBOX_WEBHOOK_NETWORKS"):
        webhooks.post_to_checked_address("https://hooks.example/x", b"", {})


@pytest.mark.usefixtures("no_connection")
def test_one_address_inside_among_others_is_enough_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "93.184.215.14", "10.0.0.1")
    with pytest.raises(webhooks.WebhookAddressRefused):
        webhooks.post_to_checked_address("https://hooks.example/", b"", {})


@pytest.mark.parametrize("address", INTERNAL)
def test_an_address_inside_is_refused_when_it_is_typed(address: str) -> None:
    with pytest.raises(webhooks.WebhookAddressRefused):
        webhooks.require_allowed_literal_url_host(
            f"http://[{address}]/" if ":" in address else f"http://{address}/"
        )


@pytest.mark.parametrize(
    "url", ["http://localhost:8765/", "http://box.localhost/", "http://x/\r\nHost:%20y", "http://a b/"]
)
def test_what_only_looks_like_a_public_url_is_refused_when_it_is_typed(url: str) -> None:
    with pytest.raises(webhooks.WebhookAddressRefused):
        webhooks.require_allowed_literal_url_host(url)


@pytest.mark.usefixtures("no_connection")
@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "017700000001", "127.1"])
def test_other_ways_to_write_loopback_are_seen_through_when_they_are_looked_up(host: str) -> None:
    with pytest.raises((webhooks.WebhookAddressRefused, webhooks.WebhookUnreachable)):
        webhooks.post_to_checked_address(f"http://{host}/", b"", {})


class Listener:
    """A listener on this machine that treats each connection as told."""

    def __init__(self, treat: Callable[[socket.socket], None]) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.received = b""
        self._treat = treat
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                line, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(line,), daemon=True).start()

    def _one(self, line: socket.socket) -> None:
        with line:
            self.received = line.recv(65_536)
            self._treat(line)


@pytest.fixture
def listen(settings: Any) -> Iterator[Callable[..., Listener]]:
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    made: list[Listener] = []

    def start(treat: Callable[[socket.socket], None]) -> Listener:
        made.append(Listener(treat))
        return made[-1]

    yield start
    for one in made:
        one.socket.close()


def test_the_connection_goes_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch, listen: Callable[..., Listener]
) -> None:
    """The name is looked up once: what it would answer a second time is never asked."""
    there = listen(lambda line: line.sendall(b"HTTP/1.1 204 No Content\r\n\r\n"))
    asked = resolving(monkeypatch, "127.0.0.1")
    assert (
        webhooks.post_to_checked_address(f"http://hooks.example:{there.port}/a?b=c", b"hello", {"X-A": "1"})
        == 204
    )
    assert asked.count("hooks.example") == 1
    assert there.received.startswith(b"POST /a?b=c HTTP/1.1\r\nHost: hooks.example:")


def test_a_receiver_that_never_ends_is_left(
    monkeypatch: pytest.MonkeyPatch, listen: Callable[..., Listener]
) -> None:
    def drip(line: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                line.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    monkeypatch.setattr(webhooks, "TIMEOUT", 0.3)
    began = time.monotonic()
    with pytest.raises(webhooks.WebhookUnreachable, match="did not answer in time"):
        webhooks.post_to_checked_address(f"http://127.0.0.1:{listen(drip).port}/", b"", {})
    assert time.monotonic() - began < AT_ONCE


def test_a_body_without_end_is_not_read(listen: Callable[..., Listener]) -> None:
    def pour(line: socket.socket) -> None:
        with contextlib.suppress(OSError):
            line.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                line.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")

    assert webhooks.post_to_checked_address(f"http://127.0.0.1:{listen(pour).port}/", b"", {}) == 200


@pytest.mark.django_db(transaction=True)
def test_a_slow_receiver_holds_up_nobody_but_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_slow", {})  # an earlier test's targets had the same ids
    alice, release, sent = person("alice"), threading.Event(), threading.Semaphore(0)
    slow, quick = (
        notifications.create_notification_target(
            user=alice, kind="webhook", address=f"https://{name}.example/", now=NOW
        )
        for name in ("slow", "quick")
    )

    def send(message: Notification, *_: object) -> str:
        if message.target_id == slow.pk:
            release.wait(60)
        else:
            sent.release()
        return "answered 200"

    monkeypatch.setattr(notifications.channels, "send_notification", send)
    for target in (slow, slow, quick, quick):
        notifications.queue_test_notification(target.pk, user=alice)  # due at once, whatever the hour
    notifications.start_due_deliveries()
    assert [sent.acquire(timeout=PATIENCE), sent.acquire(timeout=PATIENCE)] == [True, True]
    notifications.start_due_deliveries()  # the slow one is at it: it gets no second thread
    assert slow.pk in lanes.busy
    release.set()
    for thread in [one for one in threading.enumerate() if one.name.startswith("notifications-")]:
        thread.join(60)
    assert set(Notification.objects.values_list("state", flat=True)) == {"sent"}
