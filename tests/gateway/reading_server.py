"""A server on the official package with tools that say that they only read; each result counts the calls so far."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations
from pydantic import BaseModel

from tests.gateway.example_server import serving

READ_ONLY = ToolAnnotations(read_only_hint=True)


class Choice(BaseModel):
    name: str


@dataclass
class Reading:
    """The running server: `calls` counts each tool's."""

    url: str = ""
    calls: Counter[str] = field(default_factory=Counter)

    def count(self, tool: str) -> int:
        self.calls[tool] += 1
        return self.calls[tool]


def build(reading: Reading) -> MCPServer:
    server = MCPServer("reading")

    @server.tool(annotations=READ_ONLY)
    def read(path: str, lines: float = 1) -> str:
        """Read a file."""
        return f"{path} {reading.count('read')}"

    @server.tool(annotations=ToolAnnotations(read_only_hint=False))
    def write(path: str) -> str:
        """Write a file."""
        return f"{path} {reading.count('write')}"

    @server.tool(annotations=READ_ONLY)
    def fail(path: str) -> str:
        """Fail."""
        raise ValueError(f"{path} {reading.count('fail')}")

    @server.tool(annotations=READ_ONLY)
    async def ask(ctx: Context) -> str:
        """Ask a person in the middle of the call (before 2026-07-28)."""
        answer = await ctx.elicit("Which?", Choice)
        return f"{answer.action} {reading.count('ask')}"

    return server


@contextlib.contextmanager
def running(reading: Reading | None = None) -> Iterator[Reading]:
    """Serve for the length of the block."""
    reading = reading or Reading()
    with serving(build(reading).streamable_http_app()) as reading.url:
        yield reading
