"""Recognition of internal network addresses: loopback, private networks, and all else that is not the public internet.

The one guard of everything that connects to an address which a person or a foreign program chose: webhooks, push
messages, services (Apprise) and MCP servers. Each checks the address that it really connects to, after the name was
looked up. Addresses that the operator sets in the environment (single sign-on, OTLP, S3, checkpoints) are not checked:
they are internal as often as not.

The networks are listed here, as IANA's registries of special addresses have them, and not left to `ipaddress`, whose
lists differ between Python's versions.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NOT_PUBLIC_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # a provider's own NAT
            "127.0.0.0/8",
            "169.254.0.0/16",  # link-local, clouds' metadata
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
# Of IPv6, only this is given out to the public; not within are ::/96 (IPv4-compatible), 64:ff9b:1::/48, 100::/64,
# 5f00::/16, fc00::/7, fe80::/10, fec0::/10 and ff00::/8.
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocol assignments, among them Teredo
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "3fff::/20",  # documentation
        ),
    )
)
# A network's translator to IPv4, by which names without an IPv6 address are reached: what counts is the IPv4 address.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def parse_ip_address(text: str) -> Address:
    """Return the address in a text, without its zone (`fe80::1%eth0`). Raises ValueError."""
    return ipaddress.ip_address(text.partition("%")[0])


def find_internal_packet_target(address: Address, allowed: Sequence[str] = ()) -> Address | None:
    """Return the internal address that a packet to `address` may end at, or None. It leaves out `allowed` networks."""
    networks = [ipaddress.ip_network(network, strict=False) for network in allowed]
    for target in packet_target_addresses(address):
        if not is_public_address(target) and not any(target in network for network in networks):
            return target
    return None


def forbidden_destination_reason_or_empty(address: Address, allowed: Sequence[str]) -> str:
    """Return why nothing is sent to `address`, empty where it may be; `allowed` are addresses and networks."""
    internal = find_internal_packet_target(address, allowed)
    if internal is None:
        return ""
    return f"{internal} is an internal address. An operator can allow it in SIGNALBOX_WEBHOOK_NETWORKS."


def is_public_address(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


def packet_target_addresses(address: Address) -> list[Address]:
    """Return the addresses that a packet to `address` may end at: itself, or an IPv4 address that it represents."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    return [address]
