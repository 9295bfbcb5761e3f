"""A server on the official package whose tools ask a person in the middle of a call, in both generations of MCP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

from tests.gateway.example_server import serving


class Order(BaseModel):
    name: str = Field(title="Your name", description="For the label")
    size: Literal["small", "large"] = "small"
    count: int = Field(default=1, ge=1, le=9)
    gift: bool = False


class Login(BaseModel):
    user: str
    password: str = Field(title="Password of the shop")


class Meeting(BaseModel):
    at: str = Field(title="When", json_schema_extra={"format": "date-time"})
    until: str = Field(
        title="Until when",
        json_schema_extra={"format": "date-time"},
        default="2026-07-01T18:00:00+05:30",
    )


@dataclass
class Inquiring:
    """The running server: `outcomes` is what each question of it came to."""

    url: str = ""
    outcomes: list[str] = field(default_factory=list)

    def note(self, result: Any) -> str:
        text = result.action
        if isinstance(result, AcceptedElicitation) and isinstance(result.data, BaseModel):
            text += f" {result.data.model_dump_json()}"
        self.outcomes.append(text)
        return text


async def ask_order() -> Elicit[Order]:
    return Elicit("What shall be sent?", Order)


async def ask_meeting() -> Elicit[Meeting]:
    return Elicit("When shall we meet?", Meeting)


async def ask_login() -> Elicit[Login]:
    return Elicit("Sign in to the shop.", Login)


def build(inquiring: Inquiring) -> MCPServer:
    server = MCPServer("inquiring")

    @server.tool()
    async def order(outcome: Annotated[ElicitationResult[Order], Resolve(ask_order)]) -> str:
        """Order something."""
        return inquiring.note(outcome)

    @server.tool()
    async def meet(outcome: Annotated[ElicitationResult[Meeting], Resolve(ask_meeting)]) -> str:
        """Agree on a time."""
        return inquiring.note(outcome)

    @server.tool()
    async def sign_in(outcome: Annotated[ElicitationResult[Login], Resolve(ask_login)]) -> str:
        """Sign in."""
        return inquiring.note(outcome)

    @server.tool()
    async def pay(ctx: Context, url: str) -> str:
        """Have a person pay at an address (before 2026-07-28)."""
        return inquiring.note(await ctx.elicit_url("Pay for the order.", url, "elicitation-1"))

    @server.tool()
    async def order_twice(ctx: Context) -> str:
        """Ask two things, one after the other (before 2026-07-28)."""
        first = await ctx.elicit("The first?", Order)
        second = await ctx.elicit("The second?", Order)
        return f"{inquiring.note(first)} {inquiring.note(second)}"

    return server


@contextlib.contextmanager
def running() -> Iterator[Inquiring]:
    """Serve for the length of the block."""
    inquiring = Inquiring()
    with serving(build(inquiring).streamable_http_app()) as inquiring.url:
        yield inquiring
