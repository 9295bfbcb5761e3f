"""Real agents ask their person in words: the person answers here, or in the terminal, and the agent goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.agents import programs
from tests.agents.connected import connect
from tests.agents.real_agents import PROMPT, Home
from tests.agents.scripted_models import Api, Use
from tests.agents.terminals import Terminal
from tests.agents.test_real_terminals import terminal_home
from tests.patience import until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.browser, pytest.mark.one_engine]

COLOUR = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
    "multiSelect": False,
}
FRUITS = {
    "question": "Which fruits?",
    "header": "Fruit",
    "options": [{"label": "Apple", "description": "a"}, {"label": "Pear", "description": "p"}],
    "multiSelect": True,
}
PLAN_FILE = re.compile(rb"(/[^\s\"\\`]+/\.claude/plans/[^\s\"\\`]+?\.md)")


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def claude_home(opened: ExitStack, served: Served, folder: Path, program: str) -> Home:
    """Return the home of somebody who uses Claude Code in a terminal, which is connected."""
    programs.needed(program)
    served.sql("DELETE FROM tool_rules")
    home = terminal_home(opened, "claude-code", folder, program)
    (home.path / ".claude" / "settings.json").write_text("{}")
    (home.path / "bin").mkdir()  # `connect` leaves out hooks that the installed version does not know
    (home.path / "bin" / "claude").symlink_to(home.command[-1])
    home.environment["PATH"] += f":{home.path / 'bin'}"
    connect(home, served)
    return home


def started(opened: ExitStack, home: Home, mode: str) -> Terminal:
    terminal = Terminal(home, ["--permission-mode", mode, PROMPT], ENABLE_TOOL_SEARCH="false")
    opened.callback(terminal.close)
    return terminal


def waiting_question(served: Served, terminal: Terminal, tool: str) -> str:
    """Return the request that waits for the tool, as soon as one does; its terminal is read meanwhile."""

    def waiting() -> str | None:
        rows = served.sql(
            "SELECT r.request_id FROM permission_requests r JOIN permission_context c"
            " ON c.request_id = r.request_id WHERE r.status = 'pending' AND c.tool_name = ?",
            (tool,),
        )
        return str(rows[0][0]) if rows else None

    found = until(waiting, lambda: terminal.text, rest=terminal.read)
    assert found is not None
    return found


def results(home: Home) -> str:
    """Return what the model has read of its calls' results."""
    return json.dumps(json.loads(home.script.requests[-1])["messages"])


def open_request(person_at: Any, served: Served, request_id: str) -> Page:
    page: Page = person_at(served, "approver")[0]
    page.goto(f"/ui/approvals/{request_id}/")
    return page


@pytest.mark.parametrize(
    "started_as",
    [("claude-code", "default"), ("claude-code-newest", "default"), ("claude-code-newest", "auto")],
)
def test_claude_code_goes_on_with_answers_from_here(
    served: Served, opened: ExitStack, tmp_path: Path, person_at: Any, started_as: tuple[str, str]
) -> None:
    program, mode = started_as
    home = claude_home(opened, served, tmp_path, program)
    home.script.commands = (Use("AskUserQuestion", {"questions": [COLOUR, FRUITS]}),)
    terminal = started(opened, home, mode)
    page = open_request(person_at, served, waiting_question(served, terminal, "AskUserQuestion"))
    page.get_by_label("Blue").check()
    page.get_by_label("Apple").check()
    page.get_by_label("Pear").check()
    page.get_by_role("button", name="Send answers").click()
    terminal.shows("Done.")
    assert r"\"Which colour?\"=\"Blue\"" in results(home)
    assert r"\"Which fruits?\"=\"Apple, Pear\"" in results(home)


def test_an_answer_in_claude_codes_terminal_closes_the_card(
    served: Served, opened: ExitStack, tmp_path: Path, person_at: Any
) -> None:
    home = claude_home(opened, served, tmp_path, "claude-code-newest")
    home.script.commands = (Use("AskUserQuestion", {"questions": [COLOUR]}),)
    terminal = started(opened, home, "default")
    request_id = waiting_question(served, terminal, "AskUserQuestion")
    page = open_request(person_at, served, request_id)
    terminal.shows("Which colour?", "Whichcolour?")
    terminal.type("\r")
    terminal.shows("Done.")
    assert r"\"Which colour?\"=\"Red\"" in results(home)
    page.get_by_text("Answered in the terminal.").first.wait_for()


@pytest.mark.parametrize("program", ["claude-code", "claude-code-newest"])
def test_claude_codes_plan_is_sent_back_and_approved_with_a_mode(
    served: Served, opened: ExitStack, tmp_path: Path, person_at: Any, program: str
) -> None:
    home = claude_home(opened, served, tmp_path, program)
    writes: dict[str, Any] = {"file_path": "", "content": "# The plan\n\n1. Paint it"}
    home.script.commands = (
        Use("Write", writes),
        Use("ExitPlanMode", {}),
        Use("ExitPlanMode", {}),
        Use("Write", {"file_path": str(home.work / "painted"), "content": "x"}),
    )
    answers = home.script.answer

    def answer(api: Api, body: bytes) -> list[dict[str, Any]]:
        if named := PLAN_FILE.search(body):
            writes["file_path"] = named[1].decode()
        return answers(api, body)

    home.script.answer = answer  # type: ignore[method-assign]
    terminal = started(opened, home, "plan")
    first = waiting_question(served, terminal, "ExitPlanMode")
    page = open_request(person_at, served, first)
    page.get_by_role("heading", name="The plan").wait_for()
    page.get_by_placeholder("Feedback, if you reject it").fill("Sand it first.")
    page.get_by_role("button", name="Reject plan").click()
    until(lambda: "Sand it first." in results(home), lambda: terminal.text, rest=terminal.read)
    second = waiting_question(served, terminal, "ExitPlanMode")
    assert second != first
    page.goto(f"/ui/approvals/{second}/")
    page.get_by_role("button", name="Approve, allow edits").click()
    terminal.shows("Done.")  # it asked about no edit
    assert "User has approved your plan" in results(home)
    assert home.ran("painted")
