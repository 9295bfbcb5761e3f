"""The history of a tool's definition: what it was, since when, and who accepted or declined it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from coordinator.actions.mcp import mcp_servers, mcp_tools, tool_revisions
from coordinator.identity.actors import system_actor
from coordinator.mcp.servers.tools import ToolDefinition, ToolListing
from coordinator.models import AuditLog, McpServer, McpTool, McpToolRevision
from coordinator.models.mcp import RevisionKind
from tests.access.cases import add_server
from tests.people import signed_in

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BY = system_actor("gateway")
PAGE = "/ui/mcp/tool/?server=s&tool=read"


@pytest.fixture(autouse=True)
def _server() -> None:
    add_server("s")


def list_tools(description: str, *, minute: int, name: str = "read", **others: Any) -> None:
    definition = ToolDefinition(
        name, {"description": description, "inputSchema": {"type": "object"}, **others}
    )
    listing = ToolListing([definition], complete=True)
    mcp_tools.store_tool_listing("s", listing, actor=BY, now=NOW + timedelta(minutes=minute))


def steps(name: str = "read") -> list[tuple[str, str | None, str]]:
    """Return kind, description and author of the steps, the oldest first."""
    rows = McpToolRevision.objects.filter(server_id="s", tool_name=name).order_by("pk")
    return [(row.kind, (row.definition or {}).get("description"), row.changed_by) for row in rows]


def test_a_tool_that_never_changed_has_no_history() -> None:
    list_tools("Reads.", minute=0)
    list_tools("Reads.", minute=1)
    assert steps() == []
    assert "has not changed since it was first listed" in signed_in("viewer").get(PAGE).text


def test_a_changed_definition_is_stored_beside_the_one_before() -> None:
    list_tools("Reads.", minute=0)
    list_tools("Reads all.", minute=5)
    assert steps() == [("listed", "Reads.", ""), ("listed", "Reads all.", "system:gateway")]
    first, second = McpToolRevision.objects.order_by("pk")
    assert (first.changed_at, second.changed_at) == (NOW, NOW + timedelta(minutes=5))


def test_decisions_stand_in_the_history_with_who_decided() -> None:
    list_tools("Reads.", minute=0)
    list_tools("Reads all.", minute=1)
    client, seen = signed_in("approver"), McpTool.objects.get().definition_hash
    client.post("/ui/mcp/tool/accept/", {"server": "s", "tool": "read", "seen": seen, "do": "keep"})
    client.post("/ui/mcp/tool/accept/", {"server": "s", "tool": "read", "seen": seen, "do": "accept"})
    decisions = McpToolRevision.objects.exclude(kind=RevisionKind.LISTED).order_by("pk")
    assert [(row.kind, row.definition_hash) for row in decisions] == [("declined", seen), ("accepted", seen)]
    person = AuditLog.objects.filter(event_type="MCP_TOOL_ACCEPTED").get().actor_id
    assert {row.changed_by for row in decisions} == {person}
    text = client.get(PAGE).text
    assert "<b>Accepted</b>" in text
    assert "<b>Declined</b>" in text


def test_a_tool_that_changed_before_there_was_a_history_begins_with_both_definitions() -> None:
    list_tools("Reads.", minute=0)
    list_tools("Reads all.", minute=1)
    McpToolRevision.objects.all().delete()
    seen = McpTool.objects.get().definition_hash
    signed_in("approver").post(
        "/ui/mcp/tool/accept/", {"server": "s", "tool": "read", "seen": seen, "do": "accept"}
    )
    assert [(kind, description) for kind, description, _ in steps()] == [
        ("listed", "Reads."),
        ("listed", "Reads all."),
        ("accepted", None),
    ]


def test_the_page_shows_what_changed_in_the_chosen_step() -> None:
    list_tools("Reads.", minute=0)
    list_tools("Reads <b>all</b>.", minute=1)
    list_tools("Reads nothing.", minute=2)
    first, second, _ = McpToolRevision.objects.order_by("pk")
    client = signed_in("viewer")
    text = client.get(f"{PAGE}&revision={second.pk}").text
    history = text[text.index('id="history"') :]
    assert "- <" not in history
    assert "-   &quot;description&quot;: &quot;Reads.&quot;" in history
    assert "+   &quot;description&quot;: &quot;Reads &lt;b&gt;all&lt;/b&gt;.&quot;" in history
    assert "Reads nothing" not in history
    assert "Reads." in client.get(f"{PAGE}&revision={first.pk}").text
    assert client.get(f"{PAGE}&revision=x").status_code == 200


def test_no_step_of_another_tool_is_shown() -> None:
    list_tools("Reads.", minute=0)
    list_tools("Secret of another.", minute=1, name="other")
    list_tools("Changed.", minute=2, name="other")
    other = McpToolRevision.objects.order_by("pk")[0]
    assert "Secret of another" not in signed_in("viewer").get(f"{PAGE}&revision={other.pk}").text


def test_a_server_that_changes_back_and_forth_pushes_out_no_decision() -> None:
    list_tools("0", minute=0)
    list_tools("1", minute=1)
    seen = McpTool.objects.get().definition_hash
    signed_in("approver").post(
        "/ui/mcp/tool/accept/", {"server": "s", "tool": "read", "seen": seen, "do": "accept"}
    )
    for number in range(2, tool_revisions.MAX_LISTED + 10):
        list_tools(str(number), minute=number)
    kinds = [kind for kind, _, _ in steps()]
    assert kinds.count("listed") == tool_revisions.MAX_LISTED
    assert kinds.count("accepted") == 1
    assert steps()[-1][1] == str(tool_revisions.MAX_LISTED + 9)


def test_the_bytes_of_a_tool_and_of_a_server_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_revisions, "MAX_TOOL_BYTES", 400)
    for number in range(8):
        list_tools(f"{number}" * 100, minute=number)
    assert [description for _, description, _ in steps()] == ["6" * 100, "7" * 100]
    monkeypatch.setattr(tool_revisions, "MAX_SERVER_BYTES", 300)
    for number in range(2):
        list_tools(f"{number}" * 100, minute=10 + number, name="other")
    assert len(steps()) + len(steps("other")) == 2
    assert len(steps("other")) == 2


def test_the_history_is_written_with_the_change_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    list_tools("Reads.", minute=0)

    def refuse(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(mcp_tools, "audit_tool_changes", refuse)
    with pytest.raises(RuntimeError), transaction.atomic():
        list_tools("Reads all.", minute=1)
    assert steps() == []
    assert McpTool.objects.get().description == "Reads."


def test_the_history_goes_with_its_server() -> None:
    list_tools("Reads.", minute=0)
    list_tools("Reads all.", minute=1)
    mcp_servers.delete_server_with_grants("s", actor=BY, now=NOW)
    assert not McpServer.objects.filter(pk="s").exists()
    assert not McpToolRevision.objects.exists()
