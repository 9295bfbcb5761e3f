"""Nothing that connects where a person or a program wants it reaches an internal address: one guard for all of it."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from pathlib import Path
from typing import Any

import pytest

import coordinator
from coordinator.lib.internal_addresses import (
    find_internal_packet_target,
    forbidden_destination_reason_or_empty,
    parse_ip_address,
)
from coordinator.mcp.protocol.http_client import HttpClient, UpstreamFailed, parse_upstream_url
from coordinator.notifications import webhooks
from coordinator.notifications.apprise_child import AuditHookFence, FenceRefused

INTERNAL = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.1.2.3 169.254.169.254
    172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.8 192.0.0.9 192.0.0.170 192.0.2.1 192.88.99.1 192.168.0.1
    198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 :: ::1
    ::7f00:1 ::8.8.8.8 ::ffff:0:127.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:10.0.0.1
    64:ff9b::7f00:1 64:ff9b::169.254.169.254 64:ff9b:1::7f00:1 64:ff9b:1::8.8.8.8 100::1 2001::1
    2001:0:4136:e378:8000:63bf:80ff:fffe 2001:0:808:808:0:0:f7f7:f7f7 2001:2::1 2001:10::1 2001:20::1
    2001:db8::1 2002:7f00:1:: 2002:808:808:: 3fff::1 3fff:fff:ffff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1
    fe80::1%eth0 fe80::1%lo febf::1 fec0::1 feff::1 ff02::1 ff0e::1
"""
PUBLIC = """
    1.1.1.1 8.8.8.8 93.184.215.14 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 192.88.98.1
    198.17.0.1 198.20.0.1 223.255.255.255 2606:4700:4700::1111 2a00:1450:4001:81b::200e 2001:4860:4860::8888
    2400:cb00::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 3ffe::1
"""


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[tuple[Any, ...]]:
    """Let names resolve to each of `answers` in turn; return the places that are connected to."""
    connected: list[tuple[Any, ...]] = []
    left = list(answers)

    def look_up(_host: str, port: int, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        addresses = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    def connect(place: tuple[Any, ...], *_: Any) -> None:
        connected.append(place)
        raise ConnectionRefusedError

    async def open_connection(host: str, port: int, **_: Any) -> None:
        connect((host, port))

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    return connected


def post() -> None:
    webhooks.post_to_checked_address("https://hooks.example/x", b"", {})


def call_upstream() -> None:
    async def call() -> None:
        await HttpClient().connect_to_target(parse_upstream_url("https://mcp.example/x", private=False))

    asyncio.run(call())


def test_every_internal_address_is_known_and_no_public_one() -> None:
    assert [
        text for text in INTERNAL.split() if find_internal_packet_target(parse_ip_address(text)) is None
    ] == []
    assert [
        text for text in PUBLIC.split() if find_internal_packet_target(parse_ip_address(text)) is not None
    ] == []


@pytest.mark.parametrize("client", [post, call_upstream])
def test_a_name_that_leads_inside_is_not_connected_to(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    for text in INTERNAL.split():
        for addresses in ([text], ["8.8.8.8", text]):
            connected = resolving(monkeypatch, addresses)
            with pytest.raises((webhooks.WebhookAddressRefused, UpstreamFailed)):
                client()
            assert connected == [], text


@pytest.mark.parametrize("client", [post, call_upstream])
def test_what_is_connected_to_is_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch, client: Any
) -> None:
    connected = resolving(monkeypatch, ["8.8.8.8"], ["127.0.0.1"])  # rebound after the first look-up
    with pytest.raises((webhooks.WebhookUnreachable, UpstreamFailed)):
        client()
    assert connected == [("8.8.8.8", 443)]


def test_a_service_s_plugin_connects_to_no_internal_address() -> None:
    fence = AuditHookFence([], [])
    for text in INTERNAL.split():
        with pytest.raises(FenceRefused):
            fence("socket.connect", (None, (text, 80)))
    for text in PUBLIC.split():
        fence("socket.connect", (None, (text, 80)))


def test_an_operator_allows_networks_by_the_address_that_is_reached() -> None:
    def is_allowed(text: str, network: str) -> bool:
        return not forbidden_destination_reason_or_empty(parse_ip_address(text), [network])

    assert is_allowed("10.1.2.3", "10.0.0.0/8")
    assert is_allowed("::ffff:10.1.2.3", "10.0.0.0/8")
    assert is_allowed("64:ff9b::10.1.2.3", "10.0.0.0/8")
    assert not is_allowed("64:ff9b::10.1.2.3", "64:ff9b::/96")
    assert not is_allowed("2002:a01:203::", "2002::/16")  # the packet ends at 10.1.2.3
    assert not is_allowed("10.1.2.3", "192.168.0.0/16")
    assert is_allowed("fd00::1", "fd00::/8")


def test_there_is_one_guard() -> None:
    """Whether an address is public is asked nowhere else."""
    root = Path(coordinator.__file__).parent
    own = re.compile(r"\.is_(global|private|site_local|reserved|link_local)\b")
    files = [str(path.relative_to(root)) for path in root.rglob("*.py") if own.search(path.read_text())]
    assert files == []
    assert isinstance(parse_ip_address("fe80::1%eth0"), ipaddress.IPv6Address)
