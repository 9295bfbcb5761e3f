"""Real agents that a runner drives write files with their own tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import programs
from tests.agents.asking import decide
from tests.agents.driven import DONE, ON_PATH, Machine
from tests.agents.scripted_models import Use
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]

# The agent's tool that writes a file, and the names of its path and content.
WRITERS = {
    "claude": ("Write", "file_path", "content"),
    "gemini": ("write_file", "file_path", "content"),
    "opencode": ("write", "filePath", "content"),
}


@pytest.fixture
def machine(served: Served, tmp_path: Path) -> Iterator[Machine]:
    programs.needed(*ON_PATH)
    machine = Machine(served, tmp_path, tuple(WRITERS))
    machine.start()
    yield machine
    machine.close()


def test_a_driven_agent_creates_a_file_with_its_own_tool(machine: Machine, subtests: Any) -> None:
    person = machine.served.sign_in("approver")
    for agent, (tool, path, content) in WRITERS.items():
        file = machine.project(agent) / "new.txt"
        machine.scripts[agent].commands = [Use(tool, {path: str(file), content: "first\nsecond\n"})]
    turns = {agent: machine.order(agent, "Write a new file.") for agent in WRITERS}
    for agent, (run, session) in turns.items():
        with subtests.test(agent):

            def end_of_run(run: str = run) -> str | None:
                for (request_id,) in machine.served.sql(
                    "SELECT request_id FROM permission_requests WHERE status = 'pending'"
                ):
                    decide(person, request_id, "approved")
                return status if (status := machine.status(run)) in DONE else None

            assert machine.until(end_of_run, "it ends", run, session) == "completed"
            file = machine.project(agent) / "new.txt"
            assert file.read_text() == "first\nsecond\n", machine.told(run, session)
