"""The table of what works with each agent is one, in documents and on the page, and every cell's test exists."""

from __future__ import annotations

import ast

import pytest

from coordinator.client.connecting.connectable_agents import CONNECTABLE_AGENTS
from coordinator.sessions import agent_programs
from dashboard.connections import agent_support, hook_bypasses
from dashboard.templatetags.signalbox import render_backticks_as_code
from tests.people import signed_in
from tests.served import ROOT

CELLS = [
    (row.name, column, cell.test)
    for row in agent_support.list_agent_support_rows()
    for column, cell in row.cells
    if cell.test
]


def names_in(path: str) -> set[str]:
    """Return the functions of a file of tests."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("agent", "column", "test"), CELLS)
def test_every_yes_is_shown_by_a_test_that_exists(agent: str, column: str, test: str) -> None:
    path, _, name = test.partition("::")
    assert name.startswith("test_")
    assert name in names_in(path)


def test_every_agent_whose_hooks_are_understood_can_be_connected_and_has_a_row() -> None:
    assert {name: agent.title for name, agent in CONNECTABLE_AGENTS.items()} == agent_programs.AGENT_TITLES
    assert [row.name for row in agent_support.list_agent_support_rows()] == list(CONNECTABLE_AGENTS)
    assert set(agent_support.TESTS) <= set(CONNECTABLE_AGENTS)
    assert {column for tests in agent_support.TESTS.values() for column in tests} <= set(
        agent_support.COLUMNS
    )


@pytest.mark.parametrize(("document", "tests_at"), [("README.md", None), (".docs/agents.md", "../")])
def test_a_document_shows_this_table(document: str, tests_at: str | None) -> None:
    shown = (ROOT / document).read_text().partition("<!-- depth -->\n")[2].partition("\n<!-- /depth -->")[0]
    assert shown == agent_support.format_agent_support_as_markdown(tests_at), (
        "python -m dashboard.connections.agent_support prints it"
    )


@pytest.mark.django_db
def test_the_page_shows_this_table() -> None:
    page = signed_in("viewer").get("/ui/connections/").content.decode().partition('id="depth"')[2]
    for agent, _, test in CELLS:
        assert f'title="{test.partition("::")[2]}"' in page, agent
    for row in agent_support.list_agent_support_rows():
        assert row.title in page


def test_the_help_page_shows_what_runs_without_being_asked_about() -> None:
    page = (ROOT / ".docs/agents.md").read_text()
    shown = page.partition("<!-- unheld -->\n")[2].partition("\n<!-- /unheld -->")[0]
    assert shown == hook_bypasses.format_bypasses_as_markdown(), (
        "python -m dashboard.connections.hook_bypasses prints it"
    )
    assert set(hook_bypasses.UNHELD) <= set(CONNECTABLE_AGENTS)


@pytest.mark.django_db
@pytest.mark.parametrize("name", CONNECTABLE_AGENTS)
def test_an_agents_page_shows_what_runs_without_being_asked_about(name: str) -> None:
    page = signed_in("viewer").get(f"/ui/connections/{name}/").content.decode().partition('id="unheld"')[2]
    assert all(render_backticks_as_code(way.what) in page for way in hook_bypasses.list_hook_bypasses(name))
    assert ("Nobody has looked" in page) is (name not in hook_bypasses.UNHELD)


def test_what_stands_between_backticks_is_code_and_never_markup() -> None:
    assert render_backticks_as_code("a `b` <c>") == "a <code>b</code> &lt;c&gt;"
    assert (
        render_backticks_as_code("``!`…` `` in <x>, `<y>`")
        == "<code>!`…`</code> in &lt;x&gt;, <code>&lt;y&gt;</code>"
    )
    assert render_backticks_as_code("one ` alone") == "one ` alone"
