"""Through the served program: hooks, the gateway, driven agents and orders heed a budget that is used up."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.claude_code.double import Claude
from tests.client.programs import until
from tests.driving.driver import Driver
from tests.gateway.agents import KEY, Wire, furnish, text_of
from tests.gateway.example_server import running
from tests.served import Served

pytestmark = pytest.mark.served
AT_ONCE = 20


@pytest.fixture
def admin(served: Served) -> Iterator[httpx.Client]:
    browser = served.sign_in("admin")
    yield browser
    served.emptied("budget_marks", "budgets", "usage_days")


def add(admin: httpx.Client, served: Served, amount: int, at_limit: str, **more: str) -> int:
    form = {"reach": "everything", "name": "", "measure": "calls", "span": "day"} | more
    answer = admin.post("/ui/budgets/add/", data=form | {"amount": amount, "at_limit": at_limit})
    assert answer.status_code == 200, answer.text
    return int(served.sql("SELECT max(id) FROM budgets")[0][0])


def before(claude: Claude, command: str = "ls") -> dict[str, str]:
    return claude.before(claude.new_call("Bash", {"command": command}))


def test_calls_are_denied_from_the_limit_on_until_a_person_allows_more(
    served: Served, admin: httpx.Client
) -> None:
    served.emptied("usage_days")
    budget = add(admin, served, 3, "hold", span="session", reach="agent", name="claude-code")
    claude = Claude(served)
    with until() as pause:
        while not (denied := before(claude)):
            pause()
    assert denied["permissionDecision"] == "deny"
    assert f"budget {budget}" in denied["permissionDecisionReason"]
    assert "No call runs until a person raises it" in denied["permissionDecisionReason"]
    assert before(Claude(served)) == {}  # another session has its own
    assert admin.post(f"/ui/budgets/{budget}/allow/").status_code == 200
    with until() as pause:
        while before(claude):
            pause()


def test_a_used_up_budget_asks_and_names_itself(served: Served, admin: httpx.Client) -> None:
    served.emptied("usage_days")
    budget = add(admin, served, 1, "ask", span="session")
    claude = Claude(served, wait="2")
    with until() as pause:
        while not (answer := before(claude, "make it")):
            pause()
    assert answer["permissionDecision"] == "deny"  # nobody answered
    rows = served.sql("SELECT justification FROM permission_requests ORDER BY id DESC LIMIT 1")
    assert f"Budget {budget}: The budget of 1 tool calls a session for everything is used up" in rows[0][0]


def test_once_it_is_used_up_none_of_many_at_once_passes(served: Served, admin: httpx.Client) -> None:
    served.emptied("usage_days")
    add(admin, served, 5, "hold")
    agents = [Claude(served) for _ in range(AT_ONCE)]
    with until() as pause:  # the workers hear of it by the feed
        while not before(agents[0]):
            pause()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert all(pool.map(before, agents))  # used up: not one passes


def test_the_gateway_and_orders_heed_it(served: Served, admin: httpx.Client) -> None:
    served.emptied("usage_days")
    with running() as example:
        furnish(served, example.url)
        wire = Wire(served)
        wire.initialize()
        assert text_of(wire.call("echo", text="one")) == "echo: one"
        add(admin, served, 2, "hold", reach="agent", name="agent.one")
        with until() as pause:
            while "is used up" not in (said := text_of(wire.call("echo", text="two"))):
                pause()
        assert "Denied" in said
        calls = example.calls["echo two"]
        assert "is used up" in text_of(wire.call("echo", text="two"))
        assert example.calls["echo two"] == calls
    order = {"type": "start_session", "agent_name": "agent.one", "prompt": "x"}
    refused = served.client("operator").post("/runs", json=order)
    assert refused.status_code == 409
    assert "is used up" in refused.json()["detail"]


def test_a_call_through_the_gateway_over_budget_is_asked_about_once(
    served: Served, admin: httpx.Client
) -> None:
    served.emptied("usage_days", "permission_context", "permission_requests")
    with running() as example:
        furnish(served, example.url)
        wire = Wire(served)
        wire.initialize()
        claude = Claude(served, key=KEY, wait="2")
        add(admin, served, 1, "ask")
        with until() as pause:
            while not before(claude):  # its own calls are asked about here
                pause()
        asked = served.sql("SELECT count(*) FROM permission_requests")
        through = claude.new_call("mcp__signalbox__example__echo", {"text": "once"})
        assert claude.before(through) == {}
        assert served.sql("SELECT count(*) FROM permission_requests") == asked


def test_an_agent_that_a_runner_drives_uses_up_its_programs_budget(
    served: Served, admin: httpx.Client
) -> None:
    served.emptied("usage_days")
    driver = Driver(served)
    agent = {"sessionUpdate": "signalbox/agent", "agent": "claude", "agentSessionId": str(uuid.uuid4())}
    first, second = (bash(f"toolu_{uuid.uuid4().hex}") for _ in range(2))
    driver.tell(agent, {"sessionUpdate": "tool_call", "status": "in_progress", **first})
    budget = add(admin, served, 1, "hold", reach="agent", name="claude-code")
    options = [
        {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
        {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
    ]
    answer = driver.ask({"toolCall": second, "options": options})
    assert answer["outcome"] == {"optionId": "reject"}, answer
    assert f"budget {budget}" in answer["reason"]


def bash(call_id: str) -> dict[str, Any]:
    """A call of Claude Code's shell, as its runner tells it."""
    return {
        "toolCallId": call_id,
        "title": "ls",
        "kind": "execute",
        "rawInput": {"command": "ls"},
        "_meta": {"claudeCode": {"toolName": "Bash"}},
    }
