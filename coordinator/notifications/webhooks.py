"""Posting to an address that a person typed: never into our own networks, never longer than it may take.

The host's name is looked up once, every address it has is checked, and the connection goes to a checked address:
a name that answers otherwise a moment later (DNS rebinding) changes nothing. Redirects are not followed and the
receiver's body is not read; what it says is its status alone.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from coordinator.lib.internal_addresses import (
    Address,
    forbidden_destination_reason_or_empty,
    parse_ip_address,
)
from coordinator.lib.network_words import describe_network_error

TIMEOUT = 10.0  # seconds for everything after the look-up of the name, however slowly the receiver drips


class WebhookAddressRefused(Exception):
    """The address may not be posted to; says why."""


class WebhookUnreachable(Exception):
    """Nobody answered as HTTP wants it; says in a few words what went wrong, never in the receiver's."""


def parse_webhook_url(url: str) -> SplitResult:
    """Return the parts of a webhook's URL. Raises WebhookAddressRefused for one that is none, or carries a password."""
    wrong = WebhookAddressRefused(
        "A webhook is a URL like https://example.org/hook, without a name or password in it."
    )
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in {"http", "https"} or not host or parts.username or parts.password:
        raise wrong
    if any(ord(character) <= 32 or ord(character) == 127 for character in url):
        raise wrong
    return parts


def webhook_host(url: str) -> str:
    """Return the host in a webhook's URL; empty for one that is none, which another program may have stored."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def require_allowed_literal_url_host(url: str) -> None:
    """Raise WebhookAddressRefused for a URL that is none, or whose host is an address that is not to be posted to."""
    host = parse_webhook_url(url).hostname or ""
    with contextlib.suppress(ValueError):
        require_allowed_address(parse_ip_address(host))
    if host == "localhost" or host.endswith(".localhost"):
        require_allowed_address(parse_ip_address("127.0.0.1"))


def post_to_checked_address(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """Post and return the status of the answer. Raises WebhookAddressRefused or WebhookUnreachable."""
    parts = parse_webhook_url(url)
    addresses = resolve_checked_addresses(
        str(parts.hostname), parts.port or (443 if parts.scheme == "https" else 80)
    )
    connection = CheckedConnection(parts, addresses)
    alarm = threading.Timer(TIMEOUT, connection.abort_connection)
    alarm.daemon = True
    alarm.start()
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, dict(headers))
        return connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise WebhookUnreachable(
            describe_network_error(TimeoutError() if connection.aborted else problem)
        ) from None
    finally:
        alarm.cancel()
        connection.close()


def resolve_checked_addresses(host: str, port: int) -> list[tuple[str, int]]:
    """Return where the host is to be reached. Raises WebhookAddressRefused if one of its addresses is not to be."""
    try:
        address_rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as problem:
        raise WebhookUnreachable(describe_network_error(problem)) from None
    for *_, socket_address in address_rows:
        require_allowed_address(parse_ip_address(str(socket_address[0])))
    return [(str(socket_address[0]), port) for *_, socket_address in address_rows]


def require_allowed_address(address: Address) -> None:
    if address_problem := forbidden_destination_reason_or_empty(address, settings.WEBHOOK_NETWORKS):
        raise WebhookAddressRefused(address_problem)


class CheckedConnection(http.client.HTTPConnection):
    """One connection to an address that was checked, under the name that was typed."""

    def __init__(self, parts: SplitResult, addresses: list[tuple[str, int]]) -> None:
        super().__init__(str(parts.hostname), parts.port, timeout=TIMEOUT)
        if parts.scheme == "https":
            self.default_port = 443  # left out of the Host header, as 80 is for http
        self._is_tls = parts.scheme == "https"
        self._addresses = addresses
        self._raw: socket.socket | None = None
        self.aborted = False

    def connect(self) -> None:
        """Connect to the first address that answers; TLS is checked against the name."""
        problem: OSError = OSError("no address")
        for socket_address in self._addresses:
            if self.aborted:
                break
            try:
                self._raw = socket.create_connection(socket_address, TIMEOUT / 2)
                break
            except OSError as refused:
                problem = refused
        else:
            raise problem
        if self._raw is None or self.aborted:
            raise TimeoutError
        self.sock = self._raw
        if self._is_tls:
            context = ssl.create_default_context()
            tls = context.wrap_socket(self._raw, server_hostname=self.host, do_handshake_on_connect=False)
            self.sock = self._raw = tls  # first, so that a handshake that drips can be ended too
            tls.do_handshake()

    def abort_connection(self) -> None:
        """End it from another thread: whatever it waits for fails at once."""
        self.aborted = True
        if self._raw is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._raw, socket.SHUT_RDWR)
