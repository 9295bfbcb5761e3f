"""An administrator chooses which tools an agent's model is shown, and sees what each choice takes of its context."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.mcp import shown_tools
from coordinator.errors import Conflict, Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, key_actor_by_name
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.gateway.tool_search import find_tools, load_tool_listing_setting, split_words
from coordinator.mcp.gateway.visibility import hash_visible_tools
from coordinator.models import AgentToolListing, AuditLog, McpTool, McpUpstream
from tests.access.cases import add_agents, add_server, grant
from tests.people import signed_in

pytestmark = pytest.mark.django_db
ALICE = Actor("user", "alice")
KEY = key_actor_by_name("k")
PAGE = "/ui/mcp/shown/?agent=agent.a"


@pytest.fixture(autouse=True)
def _world() -> None:
    add_agents("agent.a")
    add_server("s", "opt-out", tools=["t", "u"])
    McpTool.objects.filter(name="t").update(description="Long. " * 100)


def choose(listed: str, *tools: tuple[str, str], by: Actor = ALICE) -> None:
    shown_tools.set_tools_visible_to_agent("agent.a", listed, tools, actor=by, now=timezone.now())


def shorten(text: str, seen: str | None = None, by: Actor = ALICE) -> None:
    seen = McpTool.objects.get(name="t").definition_hash if seen is None else seen
    shown_tools.set_tool_description_override("s", "t", text, seen_version=seen, actor=by, now=timezone.now())


def test_a_choice_is_saved_with_its_audit_row_and_changes_what_the_agent_sees() -> None:
    before = hash_visible_tools(GatewayCaller("agent.a"), timezone.now())
    choose("chosen", ("s", "t"))
    choose("chosen", ("s", "t"))
    (entry,) = AuditLog.objects.filter(event_type="AGENT_TOOLS_SHOWN")
    assert entry.metadata["before"] == {"listed": "all", "count": 0, "tools": []}
    assert entry.metadata["after"] == {"listed": "chosen", "count": 1, "tools": [["s", "t"]]}
    shown = load_tool_listing_setting("agent.a")
    assert (shown.is_tool_shown("s", "t"), shown.is_tool_shown("s", "u")) == (True, False)
    assert hash_visible_tools(GatewayCaller("agent.a"), timezone.now()) != before


@pytest.mark.parametrize("row", [("odd", []), ("all", None)])
def test_a_choice_that_cannot_be_read_shows_all(row: Any) -> None:
    AgentToolListing.objects.create(
        agent_id="agent.a", listed=row[0], tools=row[1] or [], changed_by="x", changed_at=timezone.now()
    )
    assert load_tool_listing_setting("agent.a").is_tool_shown("s", "u")


def test_an_odd_list_of_chosen_tools_shows_those_that_can_be_read() -> None:
    AgentToolListing.objects.create(
        agent_id="agent.a",
        listed="chosen",
        tools=[["s", "t"], ["s"], 7, [1, 2]],
        changed_by="x",
        changed_at=timezone.now(),
    )
    assert load_tool_listing_setting("agent.a").chosen == {("s", "t")}


def test_no_program_chooses_and_nothing_empty_is_chosen() -> None:
    with pytest.raises(Forbidden):
        choose("search", by=KEY)
    with pytest.raises(Forbidden):
        shorten("Short.", by=KEY)
    for listed in ("chosen", "odd", ""):
        with pytest.raises(UnprocessableRequest):
            choose(listed)
    assert not AgentToolListing.objects.exists()


def test_a_description_is_shortened_for_the_definition_that_was_read() -> None:
    shorten("Short.")
    assert McpTool.objects.get(name="t").has_current_short_description
    with pytest.raises(Conflict):
        shorten("Other.", seen="another")
    with pytest.raises(UnprocessableRequest):
        shorten("x" * 2_001)
    with pytest.raises(NotFound):
        shown_tools.set_tool_description_override(
            "s", "no", "x", seen_version="", actor=ALICE, now=timezone.now()
        )
    shorten("  ")
    assert not McpTool.objects.get(name="t").has_current_short_description
    assert [row.metadata["after"] for row in AuditLog.objects.filter(event_type="MCP_TOOL_DESCRIBED")] == [
        "Short.",
        None,
    ]


def test_the_page_says_what_each_choice_takes_and_saves_one() -> None:
    admin = signed_in("admin")
    every, chosen, search = admin.get(PAGE).context["choices"]
    assert (every.tools, chosen.tools, search.tools) == (2, 0, 2)
    assert every.tokens > 150
    choice = {"agent": "agent.a", "listed": "chosen", "tool": [json.dumps(["s", "u"]), "odd"]}
    page = admin.post("/ui/mcp/shown/save/", choice, follow=True)
    assert "Saved." in page.content.decode()
    _, chosen, _ = page.context["choices"]
    assert (chosen.tools, chosen.saved > 100, page.context["listed"]) == (1, True, "chosen")
    kept = admin.post("/ui/mcp/shown/save/", {"agent": "agent.a", "listed": "chosen"})
    assert (kept.status_code, "Choose at least one tool" in kept.content.decode()) == (422, True)


def test_a_denied_tool_is_not_counted_and_a_server_beside_the_agent_neither() -> None:
    grant("agent.a", "s", "t", "deny")
    add_server("local", "opt-out", tools=["v"])
    McpUpstream.objects.filter(pk="local").delete()
    from coordinator.models import McpServer

    McpServer.objects.filter(name="local").update(command="")
    page = signed_in("viewer").get(PAGE)
    assert [tool.name for _, tools, _ in page.context["servers"] for tool in tools] == ["u"]


def test_a_viewer_changes_nothing() -> None:
    viewer = signed_in("viewer")
    assert viewer.post("/ui/mcp/shown/save/", {"agent": "agent.a", "listed": "search"}).status_code == 403
    assert (
        viewer.post("/ui/mcp/tool/describe/", {"server": "s", "tool": "t", "description": "x"}).status_code
        == 403
    )
    assert not AgentToolListing.objects.exists()


def test_a_tool_is_described_on_its_page() -> None:
    admin, tool = signed_in("admin"), McpTool.objects.get(name="t")
    data = {"server": "s", "tool": "t", "seen": tool.definition_hash, "description": "Short."}
    assert (
        "Agents are shown this description."
        in admin.post("/ui/mcp/tool/describe/", data, follow=True).content.decode()
    )
    stale = admin.post("/ui/mcp/tool/describe/", data | {"seen": "x"}, follow=True).content.decode()
    assert "has changed since the page was loaded" in stale


def definitions(*names: str, **more: Any) -> list[bytes]:
    return [json.dumps({"name": name, "inputSchema": {"type": "object"}, **more}).encode() for name in names]


def text(tools: list[bytes], query: str, limit: int = 8) -> str:
    return find_tools(tools, query, limit, [])["content"][0]["text"]


def test_the_best_fit_comes_first() -> None:
    tools = [
        *definitions("git__create_issue", description="Open an issue."),
        *definitions("git__list_pulls", description="Every issue and pull."),
        *definitions("mail__send"),
    ]
    found = json.loads(text(tools, "create issue").partition("\n")[2])
    assert [tool["name"] for tool in found] == ["git__create_issue", "git__list_pulls"]
    assert text(tools, "nothing of this").startswith("0 of 0 tools that fit, of 3 in all.")
    assert json.loads(text(tools, "issue", limit=-5).partition("\n")[2])[0]["name"] == "git__create_issue"


def test_a_result_stays_small_and_names_who_is_away() -> None:
    tools = definitions(*(f"s__tool{number}" for number in range(50)), description="tool " * 5_000)
    assert len(text(tools, "tool", limit=1_000)) < 160_000
    assert "s__tool49" in text(tools, "")
    assert "away, gone" in find_tools(tools, "tool", 1, ["away", "gone"])["content"][0]["text"]


def test_names_are_read_as_words() -> None:
    assert split_words("getUserName_by-id über") == ["get", "user", "name", "by", "id", "über"]
