"""A push service on this machine, and a device that it delivers to: both check all that a real one would.

The token is checked with py-vapid and the message opened with http_ece, so that nothing here trusts our own code.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid02

from coordinator.notifications.webpush import decode_base64url, encode_base64url
from tests.patience import PATIENCE


class Device:
    """A browser's keys, as `pushManager.subscribe` makes them."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        point = self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.p256dh, self.auth = encode_base64url(point), encode_base64url(b"sixteen bytes ..")

    @property
    def keys(self) -> dict[str, str]:
        return {"p256dh": self.p256dh, "auth": self.auth}

    def opened(self, body: bytes) -> bytes:
        """Return what a message says, as the device reads it."""
        return http_ece.decrypt(
            body, private_key=self.private, auth_secret=decode_base64url(self.auth), version="aes128gcm"
        )


@dataclass
class PushService:
    """Keeps what was pushed to its one address, opened; answers `status`. `public_key` is whom it takes pushes from."""

    device: Device = field(default_factory=Device)
    status: int = 201
    public_key: str = ""
    url: str = ""
    came: queue.Queue[tuple[float, dict[str, str], dict[str, Any]]] = field(default_factory=queue.Queue)
    refused: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.url}/to/a-device"

    def take(self, headers: dict[str, str], body: bytes) -> int:
        try:
            self._check(headers)
            told = json.loads(self.device.opened(body))
        except Exception as problem:
            self.refused.append(repr(problem))
            return 403
        self.came.put((time.time(), headers, told))
        return self.status

    def _check(self, headers: dict[str, str]) -> None:
        assert headers["content-encoding"] == "aes128gcm"
        assert int(headers["ttl"]) > 0
        scheme, _, words = headers["authorization"].partition(" ")
        token = dict(part.strip().split("=", 1) for part in words.split(","))
        assert scheme == "vapid"
        assert not self.public_key or token["k"] == self.public_key, "another installation's key"
        assert Vapid02.verify(headers["authorization"]), "the signature is not that key's"
        claims = json.loads(decode_base64url(token["t"].split(".")[1]))
        assert claims["aud"] == self.url
        assert time.time() < claims["exp"] <= time.time() + 24 * 3600
        assert claims["sub"].startswith(("https:", "mailto:"))

    def next(self, timeout: float = PATIENCE) -> tuple[float, dict[str, str], dict[str, Any]]:
        """Return when the next message came, its headers and what it says."""
        return self.came.get(timeout=timeout)


@contextmanager
def push_service() -> Iterator[PushService]:
    """A push service that listens on loopback."""
    service = PushService()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = service.take({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            """A page of another site, with a link that leads wherever its query says."""
            link = f'<a href="{unquote(self.path.partition("?")[2])}">go</a>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(link)

        def log_message(self, *_args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield service
    server.shutdown()
    server.server_close()
