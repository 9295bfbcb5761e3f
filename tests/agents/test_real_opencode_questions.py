"""OpenCode and its fork ask their person without any rule: the answer from here, or from their screen, counts."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agents import programs
from tests.agents.connected import connect
from tests.agents.real_agents import PROMPT, Home
from tests.agents.scripted_models import Api, Use
from tests.agents.terminals import Terminal
from tests.agents.test_real_held_questions import OPENCODE_ASKS
from tests.agents.test_real_questions import open_request, waiting_question
from tests.agents.test_real_terminals import terminal_home
from tests.patience import until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.browser, pytest.mark.one_engine]

PLAN_FILE = re.compile(rb"([^\s\"\\`]*\.opencode/plans/[^\s\"\\`]+?\.md)")


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected_home(served: Served, opened: ExitStack, folder: Path, agent: str) -> Home:
    programs.needed(agent)
    home = terminal_home(opened, agent, folder, agent)
    connect(home, served)
    served.sql("DELETE FROM tool_rules")
    return home


def started(opened: ExitStack, home: Home, *words: str, **variables: str) -> Terminal:
    terminal = Terminal(home, [*words, "--prompt", PROMPT], **variables)
    opened.callback(terminal.close)
    return terminal


def model_read(home: Home, terminal: Terminal, text: str) -> None:
    until(lambda: text in home.script.requests[-1], lambda: terminal.text, rest=terminal.read)


@pytest.mark.parametrize("agent", ["opencode", "kilo"])
def test_its_question_is_answered_here_and_its_own_prompt_goes_away(
    served: Served, opened: ExitStack, tmp_path: Path, person_at: Any, agent: str
) -> None:
    home = connected_home(served, opened, tmp_path, agent)
    home.script.commands = (Use("question", OPENCODE_ASKS),)
    terminal = started(opened, home)
    page = open_request(person_at, served, waiting_question(served, terminal, "question"))
    terminal.shows("Which colour?")
    page.get_by_role("button", name="Blue").click()
    model_read(home, terminal, 'Which colour?\\"=\\"Blue')
    terminal.shows("Done.")


def test_an_answer_on_its_screen_closes_the_card(
    served: Served, opened: ExitStack, tmp_path: Path, person_at: Any
) -> None:
    home = connected_home(served, opened, tmp_path, "opencode")
    home.script.commands = (Use("question", OPENCODE_ASKS),)
    terminal = started(opened, home)
    page = open_request(person_at, served, waiting_question(served, terminal, "question"))
    terminal.shows("Which colour?")
    terminal.type("\r")
    model_read(home, terminal, 'Which colour?\\"=\\"Red')
    page.get_by_text("Answered in the terminal.").first.wait_for()


def test_a_declined_question_gives_its_model_what_the_person_wrote(
    served: Served, opened: ExitStack, tmp_path: Path, person_at: Any
) -> None:
    home = connected_home(served, opened, tmp_path, "opencode")
    home.script.commands = (Use("question", OPENCODE_ASKS),)
    terminal = started(opened, home)
    page = open_request(person_at, served, waiting_question(served, terminal, "question"))
    page.get_by_placeholder("Reason, if you decline").fill("Ask the painter.")
    page.get_by_role("button", name="Decline to answer").click()
    model_read(home, terminal, "Ask the painter.")


def test_its_plan_is_sent_back_with_feedback_and_then_approved(
    served: Served, opened: ExitStack, tmp_path: Path, person_at: Any
) -> None:
    home = connected_home(served, opened, tmp_path, "opencode")
    subprocess.run(["git", "init", "-q"], cwd=home.work, check=True)
    writes: dict[str, Any] = {"filePath": "", "content": "# The plan\n\n1. Paint it"}
    home.script.commands = (Use("write", writes), Use("plan_exit", {}))
    answers = home.script.answer

    def answer(api: Api, body: bytes) -> list[dict[str, Any]]:
        if named := PLAN_FILE.search(body):
            writes["filePath"] = named[1].decode()
        if b"Sand it first." in body and len(home.script.commands) == 2:
            home.script.starts_again(Use("plan_exit", {}))
        return answers(api, body)

    home.script.answer = answer  # type: ignore[method-assign]
    terminal = started(opened, home, "--agent", "plan", OPENCODE_EXPERIMENTAL_PLAN_MODE="1")
    first = waiting_question(served, terminal, "plan_exit")
    page = open_request(person_at, served, first)
    page.get_by_role("heading", name="The plan").wait_for()
    page.get_by_placeholder("Feedback, if you reject it").fill("Sand it first.")
    page.get_by_role("button", name="Reject plan").click()
    model_read(home, terminal, "Sand it first.")
    second = waiting_question(served, terminal, "plan_exit")
    assert second != first
    page.goto(f"/ui/approvals/{second}/")
    page.get_by_role("button", name="Approve plan").click()
    model_read(home, terminal, "User approved switching to build agent")
    assert json.loads(home.script.requests[-1])["messages"]
