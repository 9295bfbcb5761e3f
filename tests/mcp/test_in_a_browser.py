"""Giving access by hand, in a real browser on the served program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Page, expect

from tests.browser import PHONE, Watch
from tests.patience import PATIENCE
from tests.served import Served, Template, running

pytestmark = [pytest.mark.browser, pytest.mark.served]
PersonAt = Callable[..., tuple[Page, Watch]]
T0 = "2026-02-20T00:00:00+00:00"
AGENTS, TOOLS = 200, 500
TREE = "/ui/mcp/access/?agent=agent.a&server=tree"
PLACES = (
    "/ui/mcp/",
    "/ui/mcp/add/",
    "/ui/mcp/servers/tree/",
    "/ui/mcp/edit/tree/",
    "/ui/mcp/delete/tree/",
    "/ui/mcp/paste/tree/",
    "/ui/mcp/tool/?server=tree&tool=read",
    "/ui/mcp/access/",
    TREE,
    "/ui/mcp/access/?agent=agent.a",
    "/ui/mcp/access/?server=tree",
    "/ui/mcp/matrix/",
    "/ui/mcp/why/?agent=agent.a&server=tree&tool=read",
    "/ui/mcp/ask/?agent=agent.a&server=tree&tool=read",
    "/ui/mcp/grants/?standing=all",
)


@pytest.fixture(scope="module")
def served(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server with a small tree and a large server; each test uses agents of its own."""
    with running(served_template, tmp_path_factory.mktemp("mcp") / "server") as server:
        for agent in ("a", "b", "c"):
            add_agent(server, f"agent.{agent}")
        add_tools(server, "tree", ["read", "write"])
        yield server


def add_agent(served: Served, agent_id: str) -> None:
    served.sql(
        "INSERT INTO agents (id, name, default_engine_id) VALUES (?, ?, 'mind.x')", (agent_id, agent_id)
    )


def add_tools(served: Served, server: str, tools: list[str]) -> None:
    served.sql("INSERT INTO mcp_servers (name, command, created_at) VALUES (?, 'python3', 1)", (server,))
    for tool in tools:
        served.sql(
            "INSERT INTO mcp_tools (server_id, name, definition_hash, accepted_hash, first_listed_at, listed_at)"
            " VALUES (?, ?, '1', '1', ?, ?)",
            (server, tool, T0, T0),
        )


def question(agent: str, tool: str = "read", server: str = "tree") -> dict[str, str]:
    return {"agent_id": agent, "server_id": server, "tool_name": tool}


def test_no_page_breaks_the_policy_or_is_wider_than_a_phone(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "admin", **PHONE)
    for place in PLACES:
        answer = page.goto(place)
        assert answer is not None
        assert answer.status == 200, place
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place


def test_a_grant_given_by_hand_frees_a_waiting_check(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "approver")
    page.goto(TREE)
    agent = served.client("agent")
    assert agent.post("/api/access/check", json=question("agent.a")).json()["verdict"] == "deny"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(agent.post, "/api/access/check", json={**question("agent.a"), "wait": 15})
        page.get_by_role("group", name="read").get_by_text("Allow").click()
        page.get_by_label("Valid for or until").fill("8 hours")
        page.get_by_label("Reason").fill("The release waits.")
        page.get_by_role("button", name="Preview changes").click()
        dialog = page.locator("#mcp-dialog")
        expect(dialog).to_contain_text("1 tool becomes callable for agent.a")
        assert not waiting.done()
        dialog.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Saved: 1 grant changed.")).to_be_visible()
        assert waiting.result(PATIENCE).json()["reason"].endswith("The release waits.")
    expect(page.locator(".sheet-line", has_text="read")).to_contain_text("grant of this tool")


def test_why_is_one_click_from_a_cell(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "viewer")
    page.goto("/ui/mcp/matrix/?agents=agent.b&server=tree")
    page.locator("td[data-t=write] button").click()
    expect(page.locator("#mcp-dialog")).to_contain_text("agent.b may not call write")
    expect(page.locator("#mcp-dialog")).to_contain_text("calls without a grant")


def test_a_tool_is_granted_for_two_hours_in_three_clicks_from_the_matrix(
    served: Served, person_at: PersonAt
) -> None:
    page, _ = person_at(served, "approver", timezone_id="Asia/Tokyo")
    page.goto("/ui/mcp/matrix/?agents=agent.b&server=tree")
    page.locator("td[data-t=read] button").click()
    dialog = page.locator("#mcp-dialog")
    dialog.get_by_role("button", name="2 hours").click()
    expect(dialog).to_contain_text("1 tool becomes callable for agent.b")
    expect(dialog.locator(".preview-rows")).to_contain_text("(Asia/Tokyo)")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved: 1 grant changed.")).to_be_visible()
    expect(page.locator("td[data-t=read]")).to_have_class("allow own")


def test_the_words_for_an_end_are_read_while_they_are_written(served: Served, person_at: PersonAt) -> None:
    page, watch = person_at(served, "approver", timezone_id="Asia/Tokyo")
    watch.expect("422")  # the preview of an end that is too far away
    page.goto(TREE)
    field, exact = page.get_by_label("Valid for or until"), page.locator("#until-exact")
    field.fill("until friday 18:00")
    expect(exact).to_have_text(re.compile(r"Ends Fri .*, 18:00 \(Asia/Tokyo\)"))
    field.fill("next friday")
    expect(exact).to_contain_text("cannot be read as an end")
    expect(page.locator("input[name=until-1]")).to_be_hidden()
    page.get_by_role("group", name="write").get_by_text("Ask").click()
    page.get_by_label("End of this change to write").fill("2099-12-24 18:00")
    page.get_by_role("button", name="Preview changes").click()
    expect(page.locator("#mcp-dialog")).to_contain_text("more than ten years away")


def test_a_matrix_shows_what_other_programs_grant_at_once(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "viewer")
    page.goto("/ui/mcp/matrix/?agents=agent.c&server=tree")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    cell = page.locator("tr[data-a='agent.c'] td[data-t=read]")
    expect(cell).to_have_class("deny default")
    served.sql(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, permission, granted_at)"
        " VALUES ('server_grant', 'agent.c', 'tree', 'allow', ?)",
        (T0,),
    )
    expect(cell).to_have_class("allow server")


def test_two_hundred_agents_by_five_hundred_tools_are_one_plane(served: Served, person_at: PersonAt) -> None:
    for number in range(AGENTS):
        add_agent(served, f"many.{number:03}")
    add_tools(served, "large", [f"tool_{number:03}" for number in range(TOOLS)])
    page, _ = person_at(served, "approver", viewport={"width": 1280, "height": 800})
    page.goto("/ui/mcp/matrix/?agents=many&server=large")
    area = page.locator("#matrix")
    area.evaluate("area => area.scrollTo(area.scrollWidth, area.scrollHeight)")
    last = page.locator(f"tr[data-a='many.{AGENTS - 1:03}'] td[data-t='tool_{TOOLS - 1:03}']")
    expect(last).to_be_in_viewport()
    expect(page.locator("tbody tr:last-child th")).to_be_in_viewport()
    expect(page.locator(".names th:last-child")).to_be_in_viewport()
    assert page.locator("#matrix td").count() < 60 * 80
    first = page.locator(f"tr[data-a='many.{AGENTS - 3:03}'] td[data-t='tool_{TOOLS - 4:03}']")
    first.hover()
    page.mouse.down()
    last.hover()
    page.mouse.up()
    expect(page.locator("#matrix-bar")).to_contain_text("12 selected")
    page.locator("#matrix-bar").get_by_role("button", name="Preview").click()
    expect(page.locator("#mcp-dialog")).to_contain_text("12 changes")
    page.locator("#mcp-dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved: 12 grants changed.")).to_be_visible()
    agent = served.client("agent")
    said = [
        agent.post("/api/access/check", json=question(f"many.{who:03}", f"tool_{what:03}", "large")).json()
        for who, what in ((AGENTS - 1, TOOLS - 1), (AGENTS - 3, TOOLS - 4), (AGENTS - 4, TOOLS - 4))
    ]
    assert [one["verdict"] for one in said] == ["allow", "allow", "deny"]


def test_a_stale_save_shows_both_versions(served: Served, person_at: PersonAt) -> None:
    page, watch = person_at(served, "approver")
    watch.expect("409")
    page.goto("/ui/mcp/access/?agent=agent.b&server=tree")
    page.get_by_role("group", name="write").get_by_text("Allow").click()
    page.get_by_role("button", name="Preview changes").click()
    expect(page.locator("#mcp-dialog")).to_contain_text("1 tool becomes callable")
    served.sql(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, tool_name, permission, granted_at)"
        " VALUES ('tool_grant', 'agent.b', 'tree', 'write', 'deny', ?)",
        (T0,),
    )
    page.locator("#mcp-dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("Nothing was saved")).to_be_visible()
    expect(page.get_by_text("As it is now", exact=True)).to_be_visible()
