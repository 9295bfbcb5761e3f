"""Other agents' questions wait here where a rule asks about their tool: the model reads the person's answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agents import programs
from tests.agents.connected import connect
from tests.agents.real_agents import PROMPT, Home
from tests.agents.scripted_models import Use
from tests.agents.terminals import Terminal
from tests.agents.test_real_questions import COLOUR, open_request, waiting_question
from tests.agents.test_real_terminals import terminal_home
from tests.patience import until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.browser, pytest.mark.one_engine]

GEMINI_ASKS = {"questions": [COLOUR | {"type": "choice"}]}
OPENCODE_ASKS = {
    "questions": [{**{name: COLOUR[name] for name in ("question", "header", "options")}, "multiple": False}]
}
COPILOT_ASKS = {
    "message": "Which colour?",
    "requestedSchema": {
        "type": "object",
        "properties": {"colour": {"type": "string", "title": "Colour", "enum": ["Red", "Blue"]}},
        "required": ["colour"],
    },
}
# The words that start each in a terminal, its tool, and what its model asks. Kilo Code loads OpenCode's plugin.
ASKING: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "gemini": (["-i", PROMPT, "-m", "scripted"], "ask_user", GEMINI_ASKS),
    "opencode": (["--prompt", PROMPT], "question", OPENCODE_ASKS),
    "copilot": (["-i", PROMPT, "--allow-all-tools"], "AskUserQuestion", COPILOT_ASKS),
    "codex": (
        [
            "--dangerously-bypass-hook-trust",
            "--no-alt-screen",
            "--enable",
            "default_mode_request_user_input",
            PROMPT,
        ],
        "request_user_input",
        {
            "questions": [
                {"id": "colour", **{name: COLOUR[name] for name in ("question", "header", "options")}}
            ]
        },
    ),
}
# Tools that hooks, and so rules, know by another name than the model.
CALLED_BY_MODELS = {"AskUserQuestion": "ask_user"}


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def held_home(served: Served, opened: ExitStack, folder: Path, agent: str, tool: str) -> Home:
    """Return the home of somebody whose connected agent is asked about this tool by a rule."""
    home = terminal_home(opened, agent, folder, agent)
    connect(home, served)
    served.sql("DELETE FROM tool_rules")
    served.sql(
        "INSERT INTO tool_rules (position, tool, pattern, verdict, reason, deny_at_deadline, changed_at, changed_by)"
        " VALUES (1, ?, '', 'ask', '', ?, '2026-02-20T00:00:00.000000+00:00', 'user:admin')",
        (tool, True),
    )
    return home


@pytest.mark.parametrize("agent", ASKING)
def test_a_question_that_a_rule_holds_is_answered_here(
    served: Served, opened: ExitStack, tmp_path: Path, person_at: Any, agent: str
) -> None:
    programs.needed(agent)
    words, tool, asked = ASKING[agent]
    home = held_home(served, opened, tmp_path, agent, tool)
    home.script.commands = (Use(CALLED_BY_MODELS.get(tool, tool), asked),)
    terminal = Terminal(home, words)
    opened.callback(terminal.close)
    if agent == "copilot":
        terminal.shows("Do you trust the files in this folder?")
        terminal.type("\r")
    page = open_request(person_at, served, waiting_question(served, terminal, tool))
    page.get_by_role("button", name="Blue").click()
    answered = "answered this question in Signalbox"
    until(lambda: answered in "".join(home.script.requests), lambda: terminal.text, rest=terminal.read)


def test_gemini_shows_no_prompt_while_its_question_waits_here_and_escape_there_ends_the_turn(
    served: Served, opened: ExitStack, tmp_path: Path
) -> None:
    """Its hook runs before it shows the question, so nobody can answer in its terminal first: only end the turn."""
    programs.needed("gemini")
    words, tool, question = ASKING["gemini"]
    home = held_home(served, opened, tmp_path, "gemini", tool)
    home.script.commands = (Use(tool, question),)
    terminal = Terminal(home, words)
    opened.callback(terminal.close)
    waiting_question(served, terminal, tool)
    for _ in range(10):
        terminal.read()
    assert COLOUR["question"] not in terminal.text
    requests = len(home.script.requests)
    terminal.type("\r")
    terminal.type("\x1b")
    terminal.shows("Request cancelled.", "Requestcancelled.")
    assert len(home.script.requests) == requests
