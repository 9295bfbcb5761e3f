"""An upstream that ends its streams before its responses, and tells the rest to whoever asks for it (SEP-1699)."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# By what becomes of a call: told when it is asked for the second time; told after the line broke; its session is
# forgotten, or its rest refused, when that is asked for; nobody can ask for it.
TOOLS = ("polled", "cut", "forgets", "refuses", "without_id")
RETRY = 0.15  # seconds


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LeavingServer

    def log_message(self, *_: Any) -> None:
        return

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, number = message["method"], message.get("id")
        if number is None:
            self._answer(202)
        elif method == "initialize":
            about = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "l"},
            }
            self._answer(200, {"jsonrpc": "2.0", "id": number, "result": about}, **{"Mcp-Session-Id": "up"})
        elif method == "server/discover":
            self._answer(400)
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            self._answer(200, {"jsonrpc": "2.0", "id": number, "result": {"tools": tools}})
        else:
            self._leave(message["params"]["name"], number, message["params"].get("_meta", {}))

    def _leave(self, name: str, number: Any, meta: dict[str, Any]) -> None:
        self.server.calls[name] += 1
        self.server.numbers[name] = number
        half = {"progressToken": meta.get("progressToken"), "progress": 1, "message": "half"}
        self._open()
        if name == "without_id":
            self._chunk(_event({"method": "notifications/progress", "params": half}))
        else:
            self._chunk(f"retry: {RETRY * 1000:.0f}\nid: {name}-0\ndata:\n\n".encode())
        if name == "cut":
            self._chunk(_event({"method": "notifications/progress", "params": half}, f"{name}-1"))
            self.wfile.write(b"fff\r\nand the line bre")
        else:
            self._chunk(b"")
        self.server.left[name] = time.monotonic()
        self.close_connection = True

    def do_GET(self) -> None:
        told = self.headers.get("last-event-id", "")
        name, _, place = told.partition("-")
        if not name:
            self._answer(405)
            return
        self.server.asked.append((told, time.monotonic() - self.server.left[name]))
        if name in {"forgets", "refuses"}:
            self._answer(404 if name == "forgets" else 405)
            return
        self._open()
        if name == "polled" and place == "0":
            self._chunk(f"id: {name}-1\ndata:\n\n".encode())
        else:
            content = [{"type": "text", "text": f"{name}, after all"}]
            self._chunk(_event({"id": self.server.numbers[name], "result": {"content": content}}, "end"))
        self._chunk(b"")
        self.server.left[name] = time.monotonic()

    def do_DELETE(self) -> None:
        self._answer(200)

    def _open(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _answer(self, status: int, body: Any = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        about = {"Content-Type": "application/json", "Content-Length": str(len(data))} | headers
        for name, value in about.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _event(message: dict[str, Any], number: str = "") -> bytes:
    begins = f"id: {number}\n" if number else ""
    return f"{begins}data: {json.dumps({'jsonrpc': '2.0'} | message)}\n\n".encode()


class LeavingServer(ThreadingHTTPServer):
    """`calls` counts calls by tool; `asked` has each id after which the rest was asked for, and how soon."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        socketserver.TCPServer.__init__(self, ("127.0.0.1", 0), Door)
        self.calls: Counter[str] = Counter()
        self.numbers: dict[str, Any] = {}
        self.left: dict[str, float] = {}
        self.asked: list[tuple[str, float]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


@contextlib.contextmanager
def running() -> Iterator[LeavingServer]:
    """Serve for the length of the block."""
    server = LeavingServer()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
