"""`python -m tests.bench.echo_server PORT`: an MCP server over HTTP with one tool, so quick that it is nobody's limit.

Bare asyncio in one process, no sessions, no checks: for measurements alone.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
NEWEST = "2025-11-25"
TOOL = {
    "name": "echo",
    "description": "Return the text.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
NO_METHOD = {"code": -32601, "message": "Method not found"}


class Echo(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._data = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer what has arrived whole."""
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            length = LENGTH.search(self._data, 0, end + 2)
            ends = end + 4 + (int(length[1]) if length else 0)
            if len(self._data) < ends:
                return
            is_post, body = self._data.startswith(b"POST"), self._data[end + 4 : ends]
            self._data = self._data[ends:]
            self._transport.write(answered(json.loads(body)) if is_post else head(405, 0))


def answered(message: dict[str, Any]) -> bytes:
    """Return the answer to a message, as HTTP."""
    if "id" not in message or "method" not in message:
        return head(202, 0)
    found = result(message["method"], message.get("params") or {})
    told = {"error": NO_METHOD} if found is None else {"result": found}
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"]} | told).encode()
    return head(200, len(body)) + body


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return a request's result; None for a method that is not known."""
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["arguments"]["text"]}], "isError": False}
    if method == "initialize":
        version = min(params["protocolVersion"], NEWEST)
        info = {"name": "echo", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    return {} if method == "ping" else None


def head(status: int, length: int) -> bytes:
    """Return an answer's status and headers."""
    lines = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    return lines.encode()


async def main(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
