"""The address of a request's client, also behind a trusted proxy.

A forwarding header is trusted only from an address in SIGNALBOX_TRUSTED_PROXIES. From any other address it is
forged or a mistake, and is dropped before Django could see it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.conf import settings

_PEER = "signalbox.peer"
FORWARDING_HEADERS = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port"}
)


@dataclass(frozen=True, slots=True)
class ClientAddress:
    """The client's address as far as it can be trusted, and the scheme it spoke (`http` or `https`)."""

    address: str
    scheme: str


@lru_cache(maxsize=1024)
def is_in_trusted_networks(address: str, proxies: tuple[str, ...]) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(ip in ipaddress.ip_network(proxy, strict=False) for proxy in proxies)


def is_trusted_proxy(address: str) -> bool:
    """Say whether `address` is one of the operator's own proxies."""
    return is_in_trusted_networks(address, tuple(settings.TRUSTED_PROXIES))


def has_forwarding_headers(scope: dict[str, Any]) -> bool:
    """Say whether a proxy, ours or another, says that it passed this request on."""
    return any(name.lower() in FORWARDING_HEADERS for name, _value in scope["headers"])


def split_comma_separated_headers(headers: Iterable[Sequence[bytes]], name: bytes) -> list[str]:
    joined = b",".join(value for key, value in headers if key.lower() == name)
    return [part.strip() for part in joined.decode("latin-1").split(",") if part.strip()]


def get_client_address_and_scheme(scope: dict[str, Any]) -> ClientAddress:
    """Return the peer of an ASGI HTTP scope: the nearest address that is not one of our own proxies. Found once."""
    peer: ClientAddress | None = scope.get(_PEER)
    if peer is None:
        peer = scope[_PEER] = resolve_client_address_and_scheme(scope)
    return peer


def resolve_client_address_and_scheme(scope: dict[str, Any]) -> ClientAddress:
    client = scope.get("client") or ("", 0)
    address, scheme = str(client[0]), str(scope.get("scheme", "http"))
    if not is_trusted_proxy(address):
        return ClientAddress(address, scheme)
    protocols = split_comma_separated_headers(scope["headers"], b"x-forwarded-proto")
    if protocols and protocols[-1].lower() in {"http", "https"}:
        scheme = protocols[-1].lower()
    for hop in reversed(split_comma_separated_headers(scope["headers"], b"x-forwarded-for")):
        address = hop
        if not is_trusted_proxy(hop):
            break
    return ClientAddress(address, scheme)


@lru_cache(maxsize=1024)
def client_network_or_address(address: str) -> str:
    """Return the client that an address belongs to: for an IPv6 address its /64, which one machine owns."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if ip.version == 4:
        return address
    return str(ipaddress.ip_network((ip, 64), strict=False))
