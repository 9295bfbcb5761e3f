"""Callers of one MCP tool, cheap enough that a measurement measures what stands between them and the tool."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.bench.wire import Target, read_answer

TEXT = "An echo of ordinary length, so that a call is worth its name."
BOTH = "Accept: application/json, text/event-stream"
VERSION = "2025-11-25"
SESSION = re.compile(rb"\r\nmcp-session-id: *([^\r]+)", re.IGNORECASE)


@dataclass
class Way:
    """One way to the tool: where its door is, and the process (`root`, with all below it) that stands there."""

    name: str
    target: Target
    path: str
    tool: str = "echo"
    root: int | None = None
    requests: list[bytes] = field(default_factory=list)

    def begin(self, callers: int) -> None:
        """Begin a session for each caller, as MCP clients do; keeps the request that it will repeat."""
        self.requests = [self.call(self.session(), {"text": TEXT}) for _ in range(callers)]

    def session(self, name: str = "bench") -> list[str]:
        """Begin a session; return the headers that name it."""
        about = {
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": name, "version": "1"},
        }
        with self.target.connect() as sock:
            sock.sendall(self.message("initialize", about, []))
            head = b""
            while b"\r\n\r\n" not in head:
                piece = sock.recv(65_536)
                if not piece:
                    raise ConnectionError(f"{self.name} does not let a client begin")
                head += piece
            if not head.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(f"{self.name} does not let a client begin: {head[:300]!r}")
        found = SESSION.search(head)
        headers = [f"MCP-Protocol-Version: {VERSION}"]
        headers += [f"Mcp-Session-Id: {found[1].decode()}"] if found else []
        with self.target.connect() as sock:
            sock.sendall(self.message("notifications/initialized", None, headers, number=None))
            read_answer(sock)
        return headers

    def call(self, headers: list[str], arguments: dict[str, Any], **more: Any) -> bytes:
        """Return the request of a call."""
        params = {"name": self.tool, "arguments": arguments} | more
        return self.message("tools/call", params, headers)

    def message(self, method: str, params: Any, headers: list[str], *, number: int | None = 1) -> bytes:
        """Return the request that sends a message."""
        value = {"jsonrpc": "2.0", "method": method} | ({} if number is None else {"id": number})
        body = json.dumps(value if params is None else value | {"params": params}).encode()
        return self.target.request("POST", self.path, body, BOTH, *headers)


def is_echo(answer: bytes) -> bool:
    """Say whether an answer holds the tool's result and not an error."""
    return answer.startswith(b"HTTP/1.1 200") and TEXT.encode() in answer and b'"isError":true' not in answer
