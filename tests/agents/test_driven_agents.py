"""The four real agents, driven by the real runner: started, allowed, asked about, told more, stopped, taken up again.

All work at the same time, each in a repository of its own. What each does is real, its model is a script.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import programs
from tests.agents.asking import decide, hold
from tests.agents.driven import AGENTS, ON_PATH, Machine
from tests.agents.scripted_models import USED
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.browser]
REASON = "Not on a Friday."
FIRST = "Do as the script says, blue heron."


@pytest.fixture(scope="module", autouse=True)
def agents() -> None:
    programs.needed(*ON_PATH)


@pytest.fixture
def served(served: Served) -> Served:
    hold(served)
    served.sql(
        "INSERT INTO tool_rules (position, tool, pattern, verdict, reason, deny_at_deadline, changed_at, changed_by)"
        " VALUES (2, 'Bash|bash|run_shell_command', 'mkdir [a-z]+', 'allow', '', ?, '2026-02-20T00:00:00.000000+00:00',"
        " 'user:admin')",
        (False,),
    )
    return served


@pytest.fixture
def machine(served: Served, tmp_path: Path) -> Iterator[Machine]:
    one = Machine(served, tmp_path, tuple(AGENTS))
    one.start()
    yield one
    one.close()


Turns = dict[str, tuple[str, str]]


def test_a_driven_agent_from_its_start_to_its_resume(machine: Machine, person_at: Any, subtests: Any) -> None:
    page, _ = person_at(machine.served, "approver")
    turns = begun(machine)
    for agent, (run, session) in turns.items():
        with subtests.test("two calls, one held and approved in a browser", agent=agent):
            request = machine.asked(run, session, "touch approved")
            assert (machine.project(agent) / "allowed").is_dir()
            assert not (machine.project(agent) / "approved").exists()
            page.goto(f"/ui/approvals/{request}/")
            card = page.locator("article.ask")
            card.get_by_role("button", name="Approve").click()
            assert machine.ended(run, session) == "completed", machine.told(run, session)
            assert (machine.project(agent) / "approved").exists()
            was_told(machine, agent, session)
    runs = {agent: more(machine, agent, session, "touch denied") for agent, (_, session) in turns.items()}
    for agent, (_, session) in turns.items():
        run = runs[agent]
        with subtests.test("a follow-up, denied with a reason", agent=agent):
            request = machine.asked(run, session, "touch denied")
            decide(machine.served.sign_in("approver"), request, "denied", reason=REASON)
            assert machine.ended(run, session) == "completed", machine.told(run, session)
            assert not (machine.project(agent) / "denied").exists()
            assert REASON in machine.scripts[agent].requests[-1]
    runs = {agent: more(machine, agent, session, "touch stopped") for agent, (_, session) in turns.items()}
    for agent, (_, session) in turns.items():
        run = runs[agent]
        with subtests.test("stopped in mid-turn", agent=agent):
            request = machine.asked(run, session, "touch stopped")
            assert machine.http.post(f"/runs/{run}/stop").status_code == 200
            assert machine.ended(run, session) == "stopped", machine.told(run, session)
            status = "SELECT status FROM permission_requests WHERE request_id = ?"
            assert machine.served.sql(status, (request,)) == [("withdrawn",)]
            assert not (machine.project(agent) / "stopped").exists()
    machine.kill()
    machine.start()
    runs = {agent: more(machine, agent, session) for agent, (_, session) in turns.items()}
    for agent, (_, session) in turns.items():
        run = runs[agent]
        with subtests.test("resumed after the runner was killed", agent=agent):
            assert machine.ended(run, session) == "completed", machine.told(run, session)
            assert FIRST in machine.scripts[agent].requests[-1]


def begun(machine: Machine) -> Turns:
    """Start all agents."""
    for script in machine.scripts.values():
        script.commands = ["mkdir allowed", "touch approved"]
    return {agent: machine.order(agent, FIRST) for agent in machine.scripts}


def more(machine: Machine, agent: str, session: str, *commands: str) -> str:
    """Prompt an agent again, whose model then wants to run these commands; return the run."""
    script = machine.scripts[agent]
    script.starts_again(*commands)
    return machine.order(agent, "And now more.", session)[0]


def was_told(machine: Machine, agent: str, session: str) -> None:
    """Check what the session holds of its first turn: the prompt, each call once, the words, what it changed."""
    rows = machine.served.sql(
        "SELECT event_type, tool_input, role, content, error FROM events WHERE session_id = ? ORDER BY id",
        (session,),
    )
    words = {role: str(content) for kind, _, role, content, _ in rows if kind == "message"}
    assert FIRST in words["user"]
    assert "Done." in words["assistant"]
    begun = [json.loads(given)["command"] for kind, given, *_ in rows if kind == "pre_tool"]
    assert begun == ["mkdir allowed", "touch approved"]
    assert [error for kind, *_, error in rows if kind == "post_tool"] == [None, None]
    if agent == "opencode":  # its own answer counts the last of its three steps alone
        spent = machine.served.sql(
            "SELECT c.input_tokens, c.output_tokens FROM events e JOIN event_context c ON c.event_id = e.id"
            " WHERE e.session_id = ? AND e.event_type = 'model_request'",
            (session,),
        )
        assert spent == [(3 * USED, 3 * USED)]
