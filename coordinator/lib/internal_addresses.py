"""Which network addresses are our own: loopback, private networks, and what else is not of the public internet."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# IPv6 addresses that stand for an IPv4 one, which is the one to be checked: translated by a gateway.
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def why_refused(address: Address, allowed: Sequence[str]) -> str:
    """Say why nothing is sent to `address`, or nothing where it may be; `allowed` are addresses and networks."""
    for one in _meant(address):
        if any(one in ipaddress.ip_network(network, strict=False) for network in allowed):
            continue
        is_old_local = isinstance(one, ipaddress.IPv6Address) and one.is_site_local
        if not one.is_global or one.is_multicast or one.is_reserved or is_old_local:
            return f"{one} is an internal address. An operator can allow it in SIGNALBOX_WEBHOOK_NETWORKS."
    return ""


def _meant(address: Address) -> list[Address]:
    """Return the addresses that a packet to `address` may end at: itself, or the IPv4 address within it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address in NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
    return [inner] if address.ipv4_mapped and inner else [address, *([inner] if inner else [])]
