"""Tools are taken over from a pasted `tools/list`; a changed one waits for a person."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.mcp import mcp_tools as actions
from coordinator.errors import Conflict, Forbidden, NotFound, RequestTooLarge, UnprocessableRequest
from coordinator.identity.actors import Actor, key_actor_by_name
from coordinator.mcp.servers import tools as mcp_tools
from coordinator.models import AuditLog, McpTool
from dashboard.mcp.views.servers import diff_tool_definitions
from tests.access.cases import add_server

# The audit log keeps 90 days by the database's own clock, so its tests live today.
NOW = timezone.now()
ALICE = Actor("user", "alice")
READ = {"name": "read", "description": "Reads a file.", "inputSchema": {"type": "object"}}
WRITE = {"name": "write", "annotations": {"destructiveHint": True}}


def text(*tools: Any, **more: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools, **more}})


def take(*tools: Any, now: Any = NOW, **more: Any) -> actions.ToolChanges:
    return actions.store_tool_listing(
        "s", mcp_tools.parse_pasted_tool_listing(text(*tools, **more)), actor=ALICE, now=now
    )


@pytest.mark.parametrize(
    "form", [lambda t: {"jsonrpc": "2.0", "result": {"tools": t}}, lambda t: {"tools": t}, list]
)
def test_all_forms_of_a_listing_are_read(form: Any) -> None:
    listing = mcp_tools.parse_pasted_tool_listing(json.dumps(form([READ, WRITE])))
    assert [tool.name for tool in listing.tools] == ["read", "write"]


@pytest.mark.parametrize(
    ("pasted", "says"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{}", "no list of tools"),
        ('{"error": {"code": -32601, "message": "Method not found"}}', "Method not found"),
        ('[{"name": ""}]', "Tool 1 needs a name"),
        ("[1]", "Tool 1 is no object"),
        ('[{"name": "a"}, {"name": "a"}]', "same name"),
        ('[{"name": "a", "inputSchema": []}]', "a: its inputSchema must be an object"),
        (json.dumps([{"name": str(n)} for n in range(2001)]), "more than 2000"),
    ],
)
def test_what_cannot_be_read_is_said(pasted: str, says: str) -> None:
    with pytest.raises(UnprocessableRequest, match=says):
        mcp_tools.parse_pasted_tool_listing(pasted)


def test_an_endless_listing_is_refused() -> None:
    with pytest.raises(RequestTooLarge):
        mcp_tools.parse_pasted_tool_listing(" " * (mcp_tools.LARGEST_LISTING + 1))


def test_the_order_of_keys_changes_no_definition() -> None:
    assert mcp_tools.hash_tool_definition({"a": 1, "b": 2}) == mcp_tools.hash_tool_definition(
        {"b": 2, "a": 1}
    )


@pytest.mark.django_db
class TestTaking:
    @pytest.fixture(autouse=True)
    def _server(self) -> None:
        add_server("s")

    def test_new_tools_are_stored_and_accepted(self) -> None:
        assert take(READ, WRITE).new == ["read", "write"]
        tool = McpTool.objects.get(name="read")
        assert (tool.description, tool.input_schema, tool.has_undecided_definition_change) == (
            "Reads a file.",
            {"type": "object"},
            False,
        )

    def test_the_same_listing_again_changes_and_tells_nothing(self) -> None:
        take(READ)
        entries = AuditLog.objects.count()
        assert take(READ).has_no_changes
        assert AuditLog.objects.count() == entries

    def test_a_changed_tool_keeps_what_was_accepted_and_shows_the_difference(self) -> None:
        take(READ)
        later = NOW + timedelta(days=1)
        assert take({**READ, "description": "Reads any file, and sends it on."}, now=later).changed == [
            "read"
        ]
        tool = McpTool.objects.get()
        assert (tool.has_undecided_definition_change, tool.changed_at) == (True, later)
        marked = [(sign, line.strip()) for sign, line in diff_tool_definitions(tool) if sign != " "]
        assert marked == [
            ("-", '"description": "Reads a file.",'),
            ("+", '"description": "Reads any file, and sends it on.",'),
        ]

    def test_a_tool_that_changes_back_needs_no_acceptance(self) -> None:
        take(READ)
        take({**READ, "description": "Else."})
        take(READ)
        assert not McpTool.objects.get().has_undecided_definition_change

    def test_accepting_takes_the_present_definition(self) -> None:
        take(READ)
        take({**READ, "description": "Else."})
        seen = McpTool.objects.get().definition_hash
        actions.accept_tool_changes("s", ["read"], actor=ALICE, now=NOW, seen_version=seen)
        tool = McpTool.objects.get()
        assert (tool.has_undecided_definition_change, tool.accepted["description"]) == (False, "Else.")
        assert AuditLog.objects.get(event_type="MCP_TOOL_ACCEPTED").metadata["before"] == {
            "description": "Reads a file.",
            "inputSchema": {"type": "object"},
        }

    def test_accepting_what_changed_again_is_a_conflict(self) -> None:
        take(READ)
        seen = McpTool.objects.get().definition_hash
        take({**READ, "description": "Else."})
        with pytest.raises(Conflict):
            actions.accept_tool_changes("s", ["read"], actor=ALICE, now=NOW, seen_version=seen)

    def test_an_api_key_accepts_nothing(self) -> None:
        take(READ)
        with pytest.raises(Forbidden):
            actions.accept_tool_changes("s", ["read"], actor=key_actor_by_name("ci"), now=NOW)

    def test_a_tool_that_is_not_listed_any_more_is_gone_and_may_come_back(self) -> None:
        take(READ, WRITE)
        assert take(READ).gone == ["write"]
        assert take(READ, WRITE).back == ["write"]

    def test_one_page_of_several_says_nothing_about_the_others(self) -> None:
        take(READ, WRITE)
        assert take(READ, nextCursor="2").gone == []

    def test_an_unknown_server_takes_no_tools(self) -> None:
        with pytest.raises(NotFound):
            actions.store_tool_listing(
                "nowhere", mcp_tools.parse_pasted_tool_listing(text(READ)), actor=ALICE, now=NOW
            )
