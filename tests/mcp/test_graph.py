"""The graph of grants: what it draws of which grants, and how much at most."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.models import Agent
from dashboard.mcp.views.graph import MOST_GRANTS
from tests.access.cases import NOW, add_server, grant
from tests.people import signed_in

pytestmark = pytest.mark.django_db
PAGE = "/ui/mcp/graph/"
Show = Callable[..., str]


@pytest.fixture(autouse=True)
def _world() -> None:
    Agent.objects.create(id="agent.robot", name="Robot", default_engine_id="mind.x")
    add_server("files", tools=["read", "write"])


@pytest.fixture
def show() -> Show:
    client = signed_in("viewer")
    return lambda query=None: " ".join(client.get(PAGE, query or {}).content.decode().split())


def edges(page: str) -> list[tuple[str, str]]:
    return re.findall(r'class="edge (\w+)" d="M[^"]+"> <title>([^<]+)</title>', page)


def test_agents_lead_to_servers_and_servers_to_tools(show: Show) -> None:
    grant("agent.robot", "files")
    grant("agent.robot", "files", "write", "deny")
    grant("stranger", "files", "read")
    page = show()
    assert edges(page) == [
        ("allow", "agent.robot on files: allow"),
        ("none", "stranger on files: single tools"),
        ("deny", "write of files: deny"),
        ("allow", "read of files: allow"),
    ]
    assert ">Robot</text>" in page
    assert ">stranger</text>" in page


def test_a_tool_that_agents_may_use_differently_says_so(show: Show) -> None:
    grant("agent.robot", "files", "write", "deny")
    grant("stranger", "files", "write")
    assert ("mixed", "write of files: allow, deny") in edges(show())
    assert ("deny", "write of files: deny") in edges(show({"agent": "agent.robot"}))


def test_the_list_for_phones_says_what_each_agent_may_do(show: Show) -> None:
    grant("agent.robot", "files")
    grant("agent.robot", "files", "write", "deny")
    grant("stranger", "files", "write")
    outline = show().partition('<ul class="link-outline" aria-label=')[2].partition("<details>")[0]
    texts = [text.strip() for text in re.split(r"<[^>]+>", outline.partition(">")[2]) if text.strip()]
    assert texts == [
        *("Robot", "files", "allow", "write", "deny"),
        *("stranger", "files", "single tools", "write", "allow"),
    ]
    assert re.findall(r'class="edge (\w+)"', outline) == ["allow", "deny", "none", "allow"]


def test_another_name_of_an_agent_is_a_box_of_its_own(show: Show) -> None:
    grant("agent.robot", "files")
    grant("robot", "files", permission="deny")
    page = show()
    assert ">Robot</text>" in page
    assert ">robot</text>" in page


def test_grants_that_have_ended_and_capabilities_are_not_drawn(show: Show) -> None:
    grant("agent.robot", "files", expires_at=NOW)
    grant("agent.robot", "files", "read", entry_type="capability")
    assert "No active grants" in show()
    assert "No active grants match" in show({"server": "files"})


def test_more_grants_than_can_be_told_apart_are_counted(show: Show) -> None:
    for number in range(MOST_GRANTS + 2):
        grant(f"agent.{number:03}", "files")
    page = show()
    assert len(edges(page)) == MOST_GRANTS
    assert "2 grants more: choose an agent or a server." in page


@pytest.mark.parametrize("odd", ["<b>", "x" * 5000, "\u202e"])
def test_odd_filters_are_no_error(odd: Any) -> None:
    grant("agent.robot", "files")
    assert signed_in("viewer").get(PAGE, {"agent": odd, "server": odd}).status_code == 200
