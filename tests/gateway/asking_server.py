"""A server that asks its client something in the middle of whatever it is asked, and by itself on its own stream."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.patience import PATIENCE

Json = dict[str, Any]
SAMPLING: Json = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "SECRET"}}], "maxTokens": 9},
}
QUESTION: Json = {
    "method": "elicitation/create",
    "params": {"message": "Name?", "requestedSchema": {"type": "object", "properties": {}}},
}
ASKING = {"tools/call", "resources/read", "prompts/get"}
ITS_ID = "question-1"


class Asking(ThreadingHTTPServer):
    """`question` is what it asks, once `release` is set. `answers` is what came back, `began` that it was asked.

    `beside`: what it asks in the same result. `event`: what it sends in place of its question on a stream, and `error`
    in place of its answer; `asks` is the text of what it asks in a result. `stays_open`: its own
    stream lasts until it is `answered`.
    """

    daemon_threads = True
    question: Json
    answers: list[Json]
    error: Json | None

    def reset(self, question: Json) -> None:
        """Ask this from now on, at once."""
        self.question, self.answers = question, []
        self.beside: Json = {}
        self.event, self.error, self.asks = b"", None, ""
        self.stays_open = False
        self.release, self.began, self.answered = threading.Event(), threading.Event(), threading.Event()
        self.release.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/mcp"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Asking

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "method" not in message:
            self.server.answers.append(message)
            self.server.answered.set()
            self.reply(202, b"")
        elif "id" not in message:
            self.reply(202, b"")
        elif message["method"] in ASKING:
            self.ask(message)
        else:
            self.reply(200, _response(message, _result(message["method"])), "application/json")

    def ask(self, message: Json) -> None:
        self.server.began.set()
        self.server.release.wait(PATIENCE)
        if self.server.error is not None:
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": self.server.error}).encode()
            self.reply(200, body, "application/json")
            return
        params = message["params"]
        if "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {}):
            result = {
                "resultType": "input_required",
                "inputRequests": {"q": self.server.question} | self.server.beside,
            }
            if params.get("inputResponses"):
                self.server.answers.append(params["inputResponses"]["q"])
                result = {"resultType": "complete", **_done(message["method"])}
            body = _response(message, result)
            if self.server.asks:
                body = body.replace(json.dumps(result["inputRequests"]).encode(), self.server.asks.encode())
            self.reply(200, body, "application/json")
            return
        self.open_stream()
        self.tell({"jsonrpc": "2.0", "id": ITS_ID, **self.server.question})
        self.server.answered.wait(PATIENCE)
        self.wfile.write(b"data: " + _response(message, _done(message["method"])) + b"\n\n")
        self.close_connection = True

    def do_GET(self) -> None:
        self.open_stream()
        self.tell({"jsonrpc": "2.0", "id": ITS_ID, **self.server.question})
        self.tell({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        if self.server.stays_open:
            self.server.answered.wait(PATIENCE)
        self.close_connection = True

    def do_DELETE(self) -> None:
        self.reply(200, b"")

    def open_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def tell(self, message: Json) -> None:
        sent = self.server.event if self.server.event and "id" in message else json.dumps(message).encode()
        self.wfile.write(b"data: " + sent + b"\n\n")
        self.wfile.flush()

    def reply(self, status: int, body: bytes, media_type: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


def _response(message: Json, result: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


def _result(method: str) -> Json:
    if method == "initialize":
        server = {"name": "asking", "version": "1"}
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": server,
        }
    return {"tools": [{"name": "run", "inputSchema": {"type": "object"}}], "resultType": "complete"}


def _done(method: str) -> Json:
    return {
        "tools/call": {"content": [{"type": "text", "text": "done"}]},
        "resources/read": {"contents": [{"uri": "a:b", "text": "done"}]},
        "prompts/get": {"messages": []},
    }[method]


@contextlib.contextmanager
def running() -> Iterator[Asking]:
    """Serve for the length of the block."""
    server = Asking(("127.0.0.1", 0), _Handler)
    server.reset(SAMPLING)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
