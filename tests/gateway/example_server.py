"""A small MCP server on the official package, over HTTP: what a well-behaved upstream does, and it counts its calls."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ImageContent

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


@dataclass
class Example:
    """The running server: `calls` counts each tool's calls with their arguments; `release` lets `slow` end,
    `answer` is what `zap` returns."""

    url: str = ""
    calls: Counter[str] = field(default_factory=Counter)
    release: threading.Event = field(default_factory=threading.Event)
    began: threading.Event = field(default_factory=threading.Event)
    description: str = "Return the text."
    answer: str = "zapped"


def build(example: Example) -> MCPServer:
    """Return the server with its tools, a resource and a prompt."""
    server = MCPServer("example", instructions="For tests.")

    @server.tool(description=example.description)
    def echo(text: str) -> str:
        example.calls[f"echo {text}"] += 1
        return f"echo: {text}"

    @server.tool()
    def write(path: str, content: str = "") -> str:
        """Write a file."""
        example.calls[f"write {path}"] += 1
        return f"wrote {path}{content}"

    @server.tool()
    def zap() -> str:
        """Destroy everything."""
        example.calls["zap"] += 1
        return example.answer

    @server.tool()
    async def slow(path: str, ctx: Context) -> str:
        """Take until it is released."""
        import anyio

        example.calls[f"slow {path}"] += 1
        await ctx.report_progress(1, 2, "half")
        example.began.set()
        while not example.release.is_set():
            await anyio.sleep(0.02)
        return f"slow {path}"

    @server.tool()
    def picture() -> ImageContent:
        """Return an image."""
        return ImageContent(type="image", data=PIXEL, mime_type="image/png")

    @server.resource("example://note")
    def note() -> str:
        example.calls["note"] += 1
        return "a note"

    @server.prompt()
    def greet(name: str) -> str:
        example.calls[f"greet {name}"] += 1
        return f"Greet {name}."

    return server


@contextlib.contextmanager
def serving(app: Any, *, port: int = 0, ssl_certfile: Path | None = None) -> Iterator[str]:
    """Serve an application in a thread for the length of the block; yields the address of MCP without TLS."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, log_level="error", lifespan="on", ssl_certfile=ssl_certfile
    )
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server does not start"
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join(5)


@contextlib.contextmanager
def running(example: Example | None = None, *, port: int = 0) -> Iterator[Example]:
    """Serve an example in a thread for the length of the block."""
    example = example or Example()
    with serving(build(example).streamable_http_app(), port=port) as example.url:
        try:
            yield example
        finally:
            example.release.set()


if __name__ == "__main__":
    uvicorn.run(build(Example()).streamable_http_app(), port=int(sys.argv[1]), log_level="error")
