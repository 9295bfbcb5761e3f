"""An administrator chooses which tools a collection has; everybody who signs in reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.mcp import mcp_servers, tool_collections
from coordinator.errors import Conflict, Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, key_actor_by_name
from coordinator.mcp.gateway.collections import load_collection_tools
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.gateway.visibility import hash_visible_tools
from coordinator.models import AuditLog, McpServer, ToolCollection
from tests.access.cases import add_agents, add_server, grant
from tests.people import signed_in

pytestmark = pytest.mark.django_db
ALICE = Actor("user", "alice")
KEY = key_actor_by_name("k")
T, U = ("s", "t"), ("s", "u")
PAGE = "/ui/mcp/collections/of/team/"
SAVE, DELETE = "/ui/mcp/collections/save/team/", "/ui/mcp/collections/delete/team/"


@pytest.fixture(autouse=True)
def _world() -> None:
    add_agents("agent.a")
    add_server("s", "opt-out", tools=["t", "u"])
    add_server("mail", "opt-out", tools=["send"])


def create(name: str = "team", *tools: tuple[str, str], by: Actor = ALICE) -> ToolCollection:
    return tool_collections.create_tool_collection(
        name, description="For all.", tools=tools, actor=by, now=timezone.now()
    )


def update(
    *tools: tuple[str, str], seen_version: str, by: Actor = ALICE, description: str = "For all."
) -> None:
    tool_collections.update_tool_collection(
        "team", description=description, tools=tools, seen_version=seen_version, actor=by, now=timezone.now()
    )


def version() -> str:
    return tool_collections.compute_collection_version(ToolCollection.objects.get(pk="team"))


def list_audited() -> list[str]:
    rows = AuditLog.objects.filter(event_type__startswith="TOOL_COLLECTION", target_id="team")
    return list(rows.order_by("pk").values_list("event_type", flat=True))


def box(*pair: str) -> str:
    return json.dumps(pair)


def test_each_change_is_saved_with_its_audit_row() -> None:
    create("team", U, T, T)
    update(U, T, seen_version=version())
    update(T, ("mail", ""), seen_version=version())
    changed = AuditLog.objects.get(event_type="TOOL_COLLECTION_UPDATED").metadata
    assert changed["before"]["tools"] == [["s", "t"], ["s", "u"]]
    assert changed["after"] == {"description": "For all.", "count": 2, "tools": [["mail", ""], ["s", "t"]]}
    tools = load_collection_tools("team")
    assert tools is not None
    assert [tools.has_tool(*pair) for pair in (T, U, ("mail", "send"), ("mail", "later"))] == [
        True,
        False,
        True,
        True,
    ]
    tool_collections.delete_tool_collection("team", seen_version=version(), actor=ALICE, now=timezone.now())
    assert load_collection_tools("team") is None
    assert list_audited() == ["TOOL_COLLECTION_CREATED", "TOOL_COLLECTION_UPDATED", "TOOL_COLLECTION_DELETED"]


def test_no_program_and_no_stale_page_changes_a_collection() -> None:
    with pytest.raises(Forbidden):
        create(by=KEY)
    create("team", T)
    stale = version()
    update(U, seen_version=stale)
    for seen_version in (stale, "", "\u00e9", "\ud800"):
        with pytest.raises(Conflict):
            update(T, seen_version=seen_version)
        with pytest.raises(Conflict):
            tool_collections.delete_tool_collection(
                "team", seen_version=seen_version, actor=ALICE, now=timezone.now()
            )
    with pytest.raises(Forbidden):
        update(T, seen_version=version(), by=KEY)
    with pytest.raises(Forbidden):
        tool_collections.delete_tool_collection("team", seen_version=version(), actor=KEY, now=timezone.now())
    with pytest.raises(NotFound):
        tool_collections.delete_tool_collection("none", seen_version="", actor=ALICE, now=timezone.now())
    assert ToolCollection.objects.get().tools == [["s", "u"]]
    assert list_audited() == ["TOOL_COLLECTION_CREATED", "TOOL_COLLECTION_UPDATED"]


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "../x", "Team", "-a", "a\n", "x" * 65, "\u00e9", "a\x00"]
)
def test_a_name_that_is_no_part_of_an_address_is_refused(name: str) -> None:
    with pytest.raises(UnprocessableRequest):
        create(name)


def test_a_name_in_use_and_odd_tools_are_refused() -> None:
    create()
    with pytest.raises(Conflict):
        create()
    with pytest.raises(UnprocessableRequest):
        create("other", ("s\x00", "t"))
    with pytest.raises(UnprocessableRequest):
        create("other", *(("s", str(number)) for number in range(2_001)))
    with pytest.raises(UnprocessableRequest):
        update(T, seen_version=version(), description="x" * 2_001)


def test_no_server_takes_a_collections_address() -> None:
    with pytest.raises(UnprocessableRequest):
        mcp_servers.create_mcp_server("collections/team", command="x", actor=ALICE)


def test_the_list_that_an_agent_sees_there_changes_with_the_collection_and_its_grants() -> None:
    def digest(name: str = "team") -> str:
        return hash_visible_tools(GatewayCaller("agent.a"), timezone.now(), name)

    assert digest() == digest("none")
    create("team", T)
    first = digest()
    assert first != digest("none")
    update(T, U, seen_version=version())
    assert digest() != first
    grant("agent.a", "s", "u", "deny")
    assert digest() == first


def test_an_administrator_adds_a_collection_on_the_page() -> None:
    admin = signed_in("admin")
    assert "No collections yet" in admin.get("/ui/mcp/collections/").content.decode()
    data = {"name": "team", "description": "Hello", "tool": [box("s", "t"), box("mail", ""), "odd"]}
    page = admin.post("/ui/mcp/collections/add/", data, follow=True).content.decode()
    assert "/mcp/collections/team</pre>" in page
    assert "signalbox mcp collections/team" in page
    assert ToolCollection.objects.get().tools == [["mail", ""], ["s", "t"]]
    refused = admin.post("/ui/mcp/collections/add/", data)
    assert (refused.status_code, "already exists" in refused.content.decode()) == (422, True)
    assert refused.context["description"] == "Hello"
    assert [group.chosen_count for group in refused.context["servers"]] == [0, 1]
    assert "2 entries" in admin.get("/ui/mcp/collections/").content.decode()


def test_a_filter_saves_nothing_and_loses_nothing() -> None:
    create("team", T)
    data: dict[str, Any] = {
        "version": version(),
        "description": "New",
        "tool": [box("s", "u")],
        "q": "send",
        "filter": "1",
    }
    page = signed_in("admin").post(SAVE, data)
    assert [group.server_id for group in page.context["servers"]] == ["mail"]
    assert page.context["hidden_tools"] == [box("s", "u")]
    assert page.context["description"] == "New"
    assert ToolCollection.objects.get().tools == [["s", "t"]]


def test_a_stale_form_keeps_what_was_typed() -> None:
    create("team", T)
    admin, stale = signed_in("admin"), version()
    data = {"version": stale, "description": "Mine", "tool": [box("s", "u")]}
    assert "Saved." in admin.post(SAVE, data, follow=True).content.decode()
    page = admin.post(SAVE, data | {"description": "Again"})
    assert (page.status_code, page.context["description"]) == (422, "Again")
    assert "was changed by somebody else" in page.content.decode()
    assert (
        "was changed by somebody else" in admin.post(DELETE, {"version": stale}, follow=True).content.decode()
    )
    assert "was deleted" in admin.post(DELETE, {"version": version()}, follow=True).content.decode()
    assert not ToolCollection.objects.exists()


def test_a_tool_and_a_server_that_are_gone_stay_marked() -> None:
    create("team", T, ("s", "renamed"), ("left", "x"))
    McpServer.objects.filter(pk="mail").delete()
    page = signed_in("admin").get(PAGE)
    boxes = {
        (tool.server_id, tool.name): tool.is_missing
        for group in page.context["servers"]
        for tool in group.tools
        if tool.is_chosen
    }
    assert boxes == {T: False, ("s", "renamed"): True, ("left", "x"): True}
    assert "not there now" in page.content.decode()


def test_a_viewer_reads_and_changes_nothing() -> None:
    create("team", T)
    viewer = signed_in("viewer")
    assert viewer.get(PAGE).status_code == 200
    assert viewer.get("/ui/mcp/collections/").status_code == 200
    assert viewer.get("/ui/mcp/collections/of/none/").status_code == 404
    for path in (SAVE, DELETE, "/ui/mcp/collections/add/"):
        assert viewer.post(path, {"name": "other", "version": version()}).status_code == 403
    assert ToolCollection.objects.get().tools == [["s", "t"]]
