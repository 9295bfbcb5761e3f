"""Real agents that a runner knows by the command line which was entered on its machine, and by nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.asking import decide, hold
from tests.agents.driven import AGENTS, MORE_AGENTS, Machine
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
REASON = "Not on a Friday."
OPTIONS = {"opencode": "acp", "qwen": "--acp", "gemini": "--acp"}


@pytest.fixture(params=OPTIONS)
def machine(request: pytest.FixtureRequest, served: Served, tmp_path: Path) -> Iterator[Machine]:
    agent = request.param
    package = (AGENTS | MORE_AGENTS)[agent]
    programs.needed(package)
    hold(served)
    one = Machine(served, tmp_path, (agent,), {f"their-{agent}": package})
    passed = (word for name in one.environ for word in ("--pass", name))
    one.start("--agent", f"mine='{one.home}/bin/their-{agent}' {OPTIONS[agent]}", *passed)
    yield one
    one.close()


def test_an_agent_by_its_command_is_offered_asked_denied_and_approved(machine: Machine) -> None:
    (agent,) = machine.scripts
    script = machine.scripts[agent]
    script.commands = ["touch denied", "touch approved"]
    run, session = machine.order(agent, "Do as the script says.", called="mine")
    request = machine.asked(run, session, "touch denied")
    approver = machine.served.sign_in("approver")
    form = approver.get("/ui/runs/new/").text
    assert f"mine on {machine.host}" in form
    assert "resumes conversations" in form
    assert "resumes conversations" in approver.get("/ui/runners/").text
    decide(approver, request, "denied", reason=REASON)
    request = machine.asked(run, session, "touch approved")
    assert not (machine.project(agent) / "approved").exists()
    decide(approver, request, "approved")
    assert machine.ended(run, session) == "completed", machine.told(run, session)
    assert any(REASON in body for body in script.requests)  # some agents pass it on only after the turn
    assert (machine.project(agent) / "approved").exists()
    assert not (machine.project(agent) / "denied").exists()
