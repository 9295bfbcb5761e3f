"""`signalbox mcp SERVER -- COMMAND` against the doors of a served program: seen, allowed, denied, asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest

from tests.client.test_mcp_guard import Agent
from tests.gateway.agents import KEY, furnish, rule, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.hosting.conftest import SERVER
from tests.patience import PATIENCE, until
from tests.served import Served

pytestmark = pytest.mark.served


@pytest.fixture
def agent(served: Served) -> Iterator[Agent]:
    """An agent with the key of agent.one, and a server beside it that Signalbox itself has no way to."""
    served.emptied(*TABLES)
    furnish(served, "http://unused.example/", server="local")
    served.sql("DELETE FROM mcp_upstreams WHERE server_id = 'local'")
    found = Agent(served.url, "local", "--", sys.executable, SERVER, key=KEY)
    found.send("tools/list", 90)
    found.told(90)
    yield found
    found.process.kill()
    found.process.wait()


def test_a_server_beside_its_agent_goes_by_the_rules_that_are_served(served: Served, agent: Agent) -> None:
    rule(served, "mcp__local__die", "deny")
    agent.send("tools/list", 1)
    assert [tool["name"] for tool in agent.told(1)["result"]["tools"]] == ["echo", "wait", "flood"]
    assert "echo {'a': 1} 1 " in text_of(agent.call("echo", 2, a=1))
    denied = agent.call("die", 3)
    assert denied["isError"]
    assert "Denied" in text_of(denied)
    assert "echo {'a': 2} 2 " in text_of(agent.call("echo", 4, a=2)), "the denied call did not reach it"


def test_no_card_is_left_of_a_call_that_its_agent_cancelled(served: Served, agent: Agent) -> None:
    rule(served, "mcp__local__echo", "ask")
    agent.send("tools/call", 1, name="echo", arguments={"path": "/a"})
    (request_id,) = pending(served)
    agent.send("notifications/cancelled", requestId=1, reason="Esc")
    card = "SELECT status FROM permission_requests WHERE request_id = ?"
    until(lambda: served.sql(card, (request_id,)) == [("withdrawn",)], "its card stands")
    told = "SELECT error FROM events WHERE event_type = 'post_tool' AND tool_name = 'mcp__local__echo'"
    until(lambda: served.sql(told), "its end is not told")
    assert served.sql(told) == [("The client cancelled the call while it waited.",)]
    served.sql("DELETE FROM tool_rules")
    assert " 1 " in text_of(agent.call("echo", 2)), "the cancelled call reached the server"


def test_a_call_beside_its_agent_waits_for_a_person_and_stands_in_a_timeline(
    served: Served, agent: Agent
) -> None:
    rule(served, "mcp__local__echo", "ask")
    waiting = InBackground(lambda: agent.call("echo", 1, path="/a"))
    (request_id,) = pending(served)
    page = served.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
    assert "/a" in page
    decide(served, request_id)
    assert "echo {'path': '/a'} 1 " in text_of(waiting.result())
    refused = InBackground(lambda: agent.call("echo", 2, path="/b"))
    (request_id,) = pending(served)
    decide(served, request_id, "denied", reason="Not that one.")
    assert "Not that one." in text_of(refused.result())
    ended = "SELECT count(*) FROM events WHERE event_type = 'post_tool' AND tool_name = 'mcp__local__echo'"
    deadline = time.monotonic() + PATIENCE
    while served.sql(ended) != [(2,)] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert served.sql(ended) == [(2,)]
