"""Real agents that a runner drives call a tool through the gateway that the runner handed to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.runs.offers import PROGRAMS
from tests.agents import programs
from tests.agents.asking import decide
from tests.agents.driven import AGENTS, DONE, ON_PATH, Machine
from tests.agents.scripted_models import Use
from tests.gateway.agents import furnish, grant
from tests.gateway.example_server import Example, running
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]


@pytest.fixture
def example() -> Iterator[Example]:
    with running() as found:
        yield found


@pytest.fixture
def machine(served: Served, example: Example, tmp_path: Path) -> Iterator[Machine]:
    programs.needed(*ON_PATH)
    furnish(served, example.url, policy="opt-in")
    for agent in AGENTS:
        grant(served, PROGRAMS.get(agent, agent), "write", "ask")
    one = Machine(served, tmp_path, tuple(AGENTS))
    for agent, script in one.scripts.items():
        script.commands = [Use("example__write", {"path": f"/srv/{agent}", "content": "x"})]
    # Else Claude Code offers tools of MCP servers only to a model that searches for them.
    (one.home / ".claude/settings.json").write_text('{"env": {"ENABLE_TOOL_SEARCH": "false"}}')
    one.start()
    yield one
    one.close()


def test_a_driven_agent_calls_a_tool_that_a_person_approves(
    machine: Machine, example: Example, subtests: Any
) -> None:
    box, person = machine.served, machine.served.sign_in("approver")
    turns = {agent: machine.order(agent, "Write it down.") for agent in AGENTS}
    pending = "SELECT request_id FROM permission_requests WHERE status = 'pending'"
    kept = "SELECT tool_input FROM events WHERE session_id = ? AND tool_name LIKE '%example__write'"
    for agent, (run, session) in turns.items():
        with subtests.test(agent):

            def over(run: str = run) -> str | None:
                for (request_id,) in box.sql(pending):  # the agent's own question, or the gateway's
                    decide(person, request_id, "approved")
                return now if (now := machine.status(run)) in DONE else None

            assert machine.until(over, "it ends", run, session) == "completed"
            assert example.calls[f"write /srv/{agent}"] == 1, machine.told(run, session)
            told = machine.until(
                lambda session=session: box.sql(kept, (session,)), "it stands in its session", run, session
            )
            assert f"/srv/{agent}" in told[0][0]
            assert "wrote" in machine.scripts[agent].requests[-1]
