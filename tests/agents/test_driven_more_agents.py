"""Agents beside the four that most people run, driven by the real runner: asked about, denied, approved, resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.asking import decide, hold
from tests.agents.driven import MORE_AGENTS, Machine
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
REASON = "Not on a Friday."


@pytest.fixture(params=MORE_AGENTS)
def machine(request: pytest.FixtureRequest, served: Served, tmp_path: Path) -> Iterator[Machine]:
    agent = request.param
    programs.needed(MORE_AGENTS[agent])
    hold(served)
    one = Machine(served, tmp_path, (agent,), {agent: MORE_AGENTS[agent]})
    one.start()
    yield one
    one.close()


def test_a_driven_agent_is_asked_denied_approved_and_resumed(machine: Machine) -> None:
    (agent,) = machine.scripts
    approver = machine.served.sign_in("approver")
    script = machine.scripts[agent]
    script.commands = ["touch denied", "touch approved"]
    run, session = machine.order(agent, "Do as the script says, blue heron.")
    request = machine.asked(run, session, "touch denied")
    decide(approver, request, "denied", reason=REASON)
    assert REASON in next_request(machine, run, session)
    request = machine.asked(run, session, "touch approved")
    assert not (machine.project(agent) / "approved").exists()
    decide(approver, request, "approved")
    assert machine.ended(run, session) == "completed", machine.told(run, session)
    assert (machine.project(agent) / "approved").exists()
    assert not (machine.project(agent) / "denied").exists()
    rows = machine.served.sql(
        "SELECT event_type, tool_name, tool_input, error FROM events WHERE session_id = ? AND tool_name IS NOT NULL"
        " ORDER BY id",
        (session,),
    )
    begun = [json.loads(given)["command"] for kind, _, given, _ in rows if kind == "pre_tool"]
    assert begun == ["touch denied", "touch approved"]
    assert [error is None for kind, _, _, error in rows if kind == "post_tool"] == [False, True]
    machine.kill()
    machine.start()
    script.starts_again()
    run, _ = machine.order(agent, "And now more.", session)
    assert machine.ended(run, session) == "completed", machine.told(run, session)
    assert "blue heron" in script.requests[-1]


def next_request(machine: Machine, run: str, session: str) -> str:
    """Return what the model is asked next."""
    (script,) = machine.scripts.values()
    return str(machine.until(lambda: script.requests[1:2], "asked again", run, session)[0])
