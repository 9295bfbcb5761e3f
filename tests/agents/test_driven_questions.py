"""Driven agents ask their person by forms, and with options of their own: answered on the card, by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import programs
from tests.agents.driven import Machine
from tests.agents.scripted_models import Use
from tests.agents.test_real_questions import COLOUR, FRUITS
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.browser, pytest.mark.one_engine]


@pytest.fixture
def machines(served: Served, tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    made: list[Machine] = []

    def make(agent: str, *on_path: str) -> Machine:
        programs.needed(*on_path)
        served.sql("DELETE FROM tool_rules")
        machine = Machine(served, tmp_path, (agent,), {name: name for name in on_path})
        made.append(machine)
        machine.start()
        return machine

    yield make
    for machine in made:
        machine.close()


def test_claude_code_asks_by_a_form(
    served: Served, machines: Callable[..., Machine], person_at: Callable[..., Any]
) -> None:
    machine = machines("claude", "claude-agent-acp")
    machine.scripts["claude"].commands = (Use("AskUserQuestion", {"questions": [COLOUR, FRUITS]}),)
    run, session = machine.order("claude", "Ask me.")
    request_id = machine.asked(run, session, "Which colour?")
    page = person_at(served, "approver")[0]
    page.goto(f"/ui/approvals/{request_id}/")
    page.get_by_label("Blue").check()
    page.get_by_label("Apple").check()
    page.get_by_label("Pear").check()
    page.get_by_role("button", name="Send answers").click()
    assert machine.ended(run, session) == "completed", machine.told(run, session)
    said = machine.scripts["claude"].requests[-1]
    assert r"\"Which colour?\"=\"Blue\"" in said
    assert r"\"Which fruits?\"=\"Apple, Pear\"" in said


def test_claude_codes_plan_is_answered_with_its_own_options(
    served: Served, machines: Callable[..., Machine], person_at: Callable[..., Any]
) -> None:
    machine = machines("claude", "claude-agent-acp")
    settings = {"env": {"ENABLE_TOOL_SEARCH": "false"}, "permissions": {"defaultMode": "plan"}}
    (machine.home / ".claude" / "settings.json").write_text(json.dumps(settings))
    plan = Use("ExitPlanMode", {"plan": "# The plan\n\n1. Paint it"})
    machine.scripts["claude"].commands = (plan,)
    run, session = machine.order("claude", "Plan it.")
    first = machine.asked(run, session, "Paint it")
    page = person_at(served, "approver")[0]
    page.goto(f"/ui/approvals/{first}/")
    page.get_by_role("heading", name="The plan").wait_for()
    assert page.get_by_role("button", name="Yes, and use auto mode").is_visible()
    page.get_by_placeholder("Feedback, if you reject it").fill("Sand it first.")
    page.get_by_role("button", name="No, keep planning").click()
    page.get_by_text("Chosen answer").wait_for()
    requests = machine.scripts["claude"].requests
    machine.until(lambda: "Sand it first." in "".join(requests), "the model reads it", run, session)


def test_a_plan_is_approved_by_the_name_of_an_option(
    served: Served, machines: Callable[..., Machine], person_at: Callable[..., Any]
) -> None:
    machine = machines("claude", "claude-agent-acp")
    settings = {"env": {"ENABLE_TOOL_SEARCH": "false"}, "permissions": {"defaultMode": "plan"}}
    (machine.home / ".claude" / "settings.json").write_text(json.dumps(settings))
    machine.scripts["claude"].commands = (Use("ExitPlanMode", {"plan": "# The plan\n\n1. Paint it"}),)
    run, session = machine.order("claude", "Plan it.")
    request_id = machine.asked(run, session, "Paint it")
    page = person_at(served, "approver")[0]
    page.goto(f"/ui/approvals/{request_id}/")
    page.get_by_role("button", name="Yes, manually approve edits").click()
    assert machine.ended(run, session) == "completed", machine.told(run, session)
    assert "User has approved" in machine.scripts["claude"].requests[-1]
