"""Gemini CLI's plan waits here where a rule asks about it: its person reads it, sends it back, and approves it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents import programs
from tests.agents.real_agents import PROMPT
from tests.agents.scripted_models import Api, Use
from tests.agents.terminals import Terminal
from tests.agents.test_real_held_questions import held_home
from tests.agents.test_real_questions import open_request, waiting_question
from tests.patience import until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.browser, pytest.mark.one_engine]

PLANS_FOLDER = re.compile(rb"\.gemini/tmp/[^\s\"\\`]+?/plans\b")
EXIT = Use("exit_plan_mode", {"plan_filename": "paint.md"})


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_its_plan_is_sent_back_with_feedback_and_then_approved(
    served: Served, opened: ExitStack, tmp_path: Path, person_at: Any
) -> None:
    """After the yes from here it asks once more in its terminal: no hook can answer that."""
    programs.needed("gemini")
    home = held_home(served, opened, tmp_path, "gemini", "exit_plan_mode")
    writes: dict[str, Any] = {"file_path": "", "content": "# The plan\n\n1. Paint it"}
    home.script.commands = (Use("write_file", writes), EXIT, EXIT)
    answers = home.script.answer

    def answer(api: Api, body: bytes) -> list[dict[str, Any]]:
        if named := PLANS_FOLDER.search(body):
            writes["file_path"] = f"{home.path}/{named[0].decode()}/paint.md"
        return answers(replace(api, shell="read_file"), body)  # a plan is made without a shell

    home.script.answer = answer  # type: ignore[method-assign]
    terminal = Terminal(home, ["--approval-mode", "plan", "-i", PROMPT, "-m", "scripted"])
    opened.callback(terminal.close)
    first = waiting_question(served, terminal, "exit_plan_mode")
    page = open_request(person_at, served, first)
    page.get_by_role("heading", name="The plan").wait_for()
    page.get_by_placeholder("Feedback, if you reject it").fill("Sand it first.")
    page.get_by_role("button", name="Reject plan").click()
    until(lambda: "Sand it first." in home.script.requests[-1], lambda: terminal.text, rest=terminal.read)
    second = waiting_question(served, terminal, "exit_plan_mode")
    assert second != first
    page.goto(f"/ui/approvals/{second}/")
    page.get_by_text("asks once more in its terminal").wait_for()
    page.get_by_role("button", name="Approve plan").click()
    terminal.shows("Ready to start implementation?", "Yes, manually accept edits", "manually accept")
    terminal.type("\r")
    until(lambda: "Plan approved." in home.script.requests[-1], lambda: terminal.text, rest=terminal.read)
