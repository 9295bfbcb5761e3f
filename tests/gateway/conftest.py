"""The served gateway with a server behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.agents import furnish
from tests.gateway.example_server import Example, running
from tests.served import Served

TABLES = (
    "tool_rules",
    "mcp_access_control",
    "mcp_tools",
    "mcp_gateway_calls",
    "mcp_gateway_links",
    "mcp_gateway_sessions",
    "permission_context",
    "permission_requests",
)


@pytest.fixture
def example() -> Iterator[Example]:
    with running() as found:
        yield found


@pytest.fixture
def box(served: Served, example: Example) -> Served:
    """The served program, with the example server registered and open to all agents."""
    served.emptied(*TABLES)
    furnish(served, example.url)
    return served
