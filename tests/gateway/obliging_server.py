"""An upstream that answers whatever it is asked, in any method, and keeps what it got: messages, headers and bytes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
TOOLS = [{"name": "run", "inputSchema": {"type": "object"}}, {"name": "place", "inputSchema": REGION}]
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "obliging", "version": "1"},
    },
    "tools/list": {"tools": TOOLS},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
    "resources/list": {"resources": [{"uri": "file:///secret", "name": "SECRET"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "x:{a}", "name": "SECRET"}]},
    "prompts/list": {"prompts": [{"name": "SECRET"}]},
    "tasks/list": {"tasks": [{"taskId": "SECRET", "status": "working"}]},
}
ANYTHING = {"contents": [{"uri": "file:///secret", "text": "SECRET"}]}


class Obliging(ThreadingHTTPServer):
    """`got` is each message with its headers and bytes."""

    daemon_threads = True
    got: list[tuple[dict[str, Any], dict[str, str], bytes]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/mcp"

    def heard(self, method: str) -> list[tuple[dict[str, Any], dict[str, str], bytes]]:
        """Return what came with a method."""
        return [entry for entry in self.got if entry[0].get("method") == method]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Obliging

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        message = json.loads(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.got.append((message, headers, raw))
        body = b""
        if "id" in message and "method" in message:
            result = RESULTS.get(message["method"], ANYTHING) | {"resultType": "complete"}
            if message["method"] == "tools/call" and "task" in message["params"]:
                result = {"task": {"taskId": "SECRET", "status": "working"}}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        return


@contextlib.contextmanager
def running() -> Iterator[Obliging]:
    """Serve for the length of the block."""
    server = Obliging(("127.0.0.1", 0), _Handler)
    server.got = []
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
