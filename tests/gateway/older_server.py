"""An upstream of the versions with sessions, which it keeps in memory: it forgets them, and tells requests by ids."""

from __future__ import annotations

import contextlib
import json
import queue
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOLS: tuple[str, ...] = ("echo", "slow")
LOST = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Session not found"}}


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OlderServer

    def log_message(self, *_: Any) -> None:
        return

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session, method, number = self.headers["mcp-session-id"], message["method"], message.get("id")
        if method == "initialize":
            self._begin(number)
        elif method == "server/discover":
            self._answer(400, LOST | {"id": number})
        elif session not in self.server.sessions:
            self._answer(*self.server.forgets)
        elif number is None:
            self.server.told.append((session, message))
            cancelled = session, message.get("params", {}).get("requestId")
            if method == "notifications/cancelled" and cancelled in self.server.streams:
                self.server.streams[cancelled].put(None)
            self._answer(202, None)
        elif method == "tools/list":
            self.server.listed += 1
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.server.tools]
            self._answer(200, {"jsonrpc": "2.0", "id": number, "result": {"tools": tools}})
        else:
            self._call(session, number, message["params"])

    def do_GET(self) -> None:
        """Refuse a stream of news, which it does not have."""
        self._answer(
            *(405, None) if self.headers["mcp-session-id"] in self.server.sessions else self.server.forgets
        )

    def do_DELETE(self) -> None:
        self.server.sessions.discard(self.headers["mcp-session-id"])
        self._answer(200, None)

    def _begin(self, number: Any) -> None:
        session = f"up-{self.server.begun}"
        self.server.begun += 1
        self.server.sessions.add(session)
        about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "o"}}
        self._answer(200, {"jsonrpc": "2.0", "id": number, "result": about}, **{"Mcp-Session-Id": session})

    def _call(self, session: str, number: Any, params: dict[str, Any]) -> None:
        """Answer on whichever line asked last under this id, as servers do that tell requests by their ids alone."""
        said = f"{params['name']} {json.dumps(params.get('arguments'))}"
        with self.server.lock:
            self.server.calls[said] += 1
            own = self.server.streams[session, number] = queue.SimpleQueue()
        token = params.get("_meta", {}).get("progressToken")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        if token is not None:
            self._event(
                {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
            )
        if params["name"] == "slow":
            threading.Thread(target=self._end, args=(session, number, said), daemon=True).start()
        else:
            own.put(said)
        told = own.get()
        if told is not None:
            self._event({"id": number, "result": {"content": [{"type": "text", "text": told}]}})
        self.close_connection = True

    def _end(self, session: str, number: Any, said: str) -> None:
        self.server.release.wait()
        self.server.streams[session, number].put(said)

    def _event(self, message: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n\n")
        self.wfile.flush()

    def _answer(self, status: int, body: Any, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class OlderServer(ThreadingHTTPServer):
    """`calls` counts calls with their arguments, `told` has notifications by session; `release` lets `slow` end."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        socketserver.TCPServer.__init__(self, ("127.0.0.1", 0), Door)
        self.sessions: set[str] = set()
        self.tools = TOOLS
        self.begun = self.listed = 0
        self.forgets: tuple[int, Any] = (404, LOST)
        self.calls: Counter[str] = Counter()
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.streams: dict[tuple[str, Any], queue.SimpleQueue[str | None]] = {}
        self.release = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


@contextlib.contextmanager
def running() -> Iterator[OlderServer]:
    """Serve for the length of the block."""
    server = OlderServer()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.release.set()
        server.shutdown()
        server.server_close()
