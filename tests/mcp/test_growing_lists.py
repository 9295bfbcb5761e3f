"""What is odd or too much in a server's list of tools is left out and named, and what is stored stays small."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.mcp import mcp_tools as actions
from coordinator.errors import UnprocessableRequest
from coordinator.identity.actors import system_actor
from coordinator.mcp.gateway import listing
from coordinator.mcp.servers import tools as mcp_tools
from coordinator.mcp.servers.tools import parse_decoded_tool_listing
from coordinator.models import AuditLog, McpTool
from tests.access.cases import add_server, grant
from tests.people import signed_in

pytestmark = pytest.mark.django_db

NOW = timezone.now()
BY = system_actor("mcp-gateway")


@pytest.fixture(autouse=True)
def _server() -> None:
    add_server("s")


def tools(count: int, prefix: str = "t", **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"{prefix}{number}", **more} for number in range(count)]


def store(*listed: Any, complete: bool = True, now: Any = NOW) -> actions.ToolChanges:
    value = {"tools": [*listed]} | ({} if complete else {"nextCursor": "more"})
    return actions.store_tool_listing("s", parse_decoded_tool_listing(value), actor=BY, now=now)


def names() -> set[str]:
    return set(McpTool.objects.values_list("name", flat=True))


ODD: dict[str, Any] = {
    "surrogate": b'{"name": "odd\\ud800"}',
    "surrogate inside": b'{"name": "odd", "inputSchema": {"type": "\\ud800"}}',
    "nul": b'{"name": "odd\\u0000"}',
    "no name": b'{"description": "nameless"}',
    "no object": b"[1]",
    "wrong kind": b'{"name": "odd", "inputSchema": []}',
    "too large": json.dumps({"name": "odd", "description": "x" * mcp_tools.MAX_DEFINITION_BYTES}).encode(),
    "too long a name": json.dumps({"name": "odd" * 100}).encode(),
    "twins": b'{"name": "odd"}, {"name": "odd"}',
}


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_an_odd_tool_is_left_out_and_the_others_are_not(odd: bytes) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"first"},' + odd + b',{"name":"last"}]}}'
    page = listing.parse_listing_page_unless_error(body)
    assert page is not None
    assert [tool.name for tool in page.listing.tools] == ["first", "last"]
    assert page.raw == [b'{"name":"first"}', b'{"name":"last"}']
    assert page.listing.left_out
    taken = actions.store_tool_listing("s", page.listing, actor=BY, now=NOW)
    assert names() == {"first", "last"}
    entry = AuditLog.objects.get(event_type="MCP_TOOLS_LEFT_OUT", target_id="s")
    assert entry.metadata["count"] == len(taken.left_out)


def test_what_a_person_pastes_is_refused_with_the_reason_instead() -> None:
    with pytest.raises(UnprocessableRequest, match="larger than 128 KiB"):
        mcp_tools.parse_pasted_tool_listing("[" + ODD["too large"].decode() + "]")
    with pytest.raises(UnprocessableRequest, match="a number that JSON has no form for"):
        mcp_tools.parse_pasted_tool_listing('[{"name": "a", "inputSchema": {"maximum": 1e400}}]')


def test_the_same_is_audited_once_a_day() -> None:
    for hours in (0, 1, 23, 25):
        store({"name": ""}, now=NOW + timedelta(hours=hours))
    store({"name": ""}, {"name": "x" * 300}, now=NOW + timedelta(hours=25))
    assert AuditLog.objects.filter(event_type="MCP_TOOLS_LEFT_OUT").count() == 3


def test_a_server_that_lists_other_tools_each_time_fills_its_room_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(actions, "MOST_TOOLS", 5)
    monkeypatch.setattr(actions, "MAX_STORED_TOOLS", 10)
    for number in range(9):  # pages of one list
        store(*tools(4, f"page{number}-"), complete=False)
    assert McpTool.objects.count() == 5
    for number in range(9):  # each a whole list
        taken = store(*tools(4, f"list{number}-"), now=NOW + timedelta(hours=number))
        assert taken.new == [f"list{number}-{place}" for place in range(4)]
        assert McpTool.objects.filter(gone_at=None).count() == 4
        assert McpTool.objects.count() <= 10
    assert {"list8-0", "list7-0"} <= names()
    assert "page0-0" not in names()


def test_what_a_person_decided_about_is_not_forgotten_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_STORED_TOOLS", 4)
    store({"name": "granted"}, {"name": "changed"}, {"name": "plain"})
    grant("agent.a", "s", "granted")
    store({"name": "granted"}, {"name": "changed", "description": "else"}, {"name": "plain"})
    taken = store(*tools(3))
    assert taken.new == ["t0", "t1"]
    assert [tool.name for tool in taken.left_out] == ["t2"]
    assert names() == {"granted", "changed", "t0", "t1"}
    assert McpTool.objects.get(name="changed").has_undecided_definition_change


def test_definitions_of_one_server_take_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_STORED_BYTES", 10_000)
    taken = store(*tools(8, description="x" * 1_000))
    assert len(taken.new) == 4  # the present definition and the accepted one
    assert all("more than 10000 bytes" in tool.reason for tool in taken.left_out)
    changed = store(*tools(4, description="y" * 4_000))
    assert len(changed.left_out) == 4
    assert not any(tool.has_undecided_definition_change for tool in McpTool.objects.all())
    assert store(*tools(4, description="x" * 1_000)).has_no_changes


def test_an_audit_row_names_some_and_counts_the_others() -> None:
    store(*tools(250))
    metadata = AuditLog.objects.get(event_type="MCP_TOOLS_LISTED").metadata
    assert len(metadata["new"]) == actions.MAX_NAMES_IN_AUDIT
    assert metadata["unnamed"] == {"new": 150}


def test_more_tools_than_a_page_may_have_are_left_out() -> None:
    read = parse_decoded_tool_listing(tools(mcp_tools.MOST_TOOLS + 3))
    assert (len(read.tools), len(read.left_out)) == (mcp_tools.MOST_TOOLS, 3)


def test_the_server_s_page_names_what_was_left_out() -> None:
    store({"name": "odd", "inputSchema": []}, {"name": "fine"})
    text = signed_in("viewer").get("/ui/mcp/servers/s/").content.decode()
    assert "odd: its inputSchema must be an object." in text
