"""A call that both its agent's hooks and the gateway tell is one call in the session's timeline."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.gateway.agents import KEY, Wire, rule, text_of
from tests.gateway.example_server import Example
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = pytest.mark.served

TOOL = "mcp__signalbox__example__write"
AGENTS_OWN = "0b3c5d1e-0000-4000-8000-000000000001"


class Agent:
    """Claude Code as its hooks tell it: with the agent's key, in a session of its own."""

    def __init__(self, box: Served) -> None:
        self.http = box.client(key=None)
        self.http.headers["Authorization"] = f"Bearer {KEY}"

    def tell(self, event: str, **fields: Any) -> None:
        body = {"session_id": AGENTS_OWN, "cwd": "/srv/shop", "hook_event_name": event} | fields
        assert self.http.post("/hooks/claude-code", json=body).status_code == 200

    def begins(self, call_id: str, tool: str = TOOL, **given: Any) -> None:
        self.tell("PreToolUse", tool_name=tool, tool_input=given, tool_use_id=call_id)

    def ends(self, call_id: str, tool: str = TOOL, **given: Any) -> None:
        came = {"tool_response": "wrote it", "tool_use_id": call_id}
        self.tell("PostToolUse", tool_name=tool, tool_input=given, **came)


@pytest.fixture
def agent(box: Served) -> Agent:
    found = Agent(box)
    found.tell("SessionStart", source="startup")
    return found


@pytest.fixture
def wire(box: Served) -> Wire:
    found = Wire(box)
    found.initialize()
    return found


def told(box: Served, count: int) -> list[tuple[Any, ...]]:
    """Return the events of calls, once there are so many: kind, tool, the call's id, who told it."""
    asked = (
        "SELECT e.event_type, e.tool_name, c.tool_use_id, c.source FROM events e"
        " JOIN event_context c ON c.event_id = e.id WHERE e.tool_name IS NOT NULL ORDER BY e.id"
    )
    deadline = time.monotonic() + PATIENCE
    while len(rows := box.sql(asked)) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return rows


def test_the_gateway_tells_the_end_of_the_call_that_its_agent_began(
    box: Served, agent: Agent, wire: Wire
) -> None:
    agent.begins("toolu_1", path="/a", content="")
    wire.call("write", path="/a", content="")
    told(box, 2)
    agent.ends("toolu_1", path="/a", content="")
    assert told(box, 3) == [
        ("pre_tool", TOOL, "toolu_1", "claude-code"),
        ("post_tool", TOOL, "toolu_1", "gateway"),
        ("post_tool", TOOL, "toolu_1", "claude-code"),
    ]


@pytest.mark.parametrize(
    ("tool", "given"),
    [(TOOL, {"path": "/b"}), ("Write", {"path": "/a"}), ("mcp__other__read", {"path": "/a"})],
)
def test_another_call_is_none_of_it(
    box: Served, agent: Agent, wire: Wire, tool: str, given: dict[str, Any]
) -> None:
    agent.begins("toolu_1", tool, **given)
    wire.call("write", path="/a")
    assert [row[3] for row in told(box, 3)] == ["claude-code", "gateway", "gateway"]


def test_each_of_two_equal_calls_is_one_of_its_own(box: Served, agent: Agent, wire: Wire) -> None:
    agent.begins("toolu_1", path="/a")
    agent.begins("toolu_2", path="/a")
    for _ in range(3):
        wire.call("write", path="/a")
    rows = told(box, 6)
    assert sorted(row[2] for row in rows if row[3] == "gateway" and row[0] == "post_tool")[1:] == [
        "toolu_1",
        "toolu_2",
    ]
    assert [row[0] for row in rows if row[3] == "gateway"].count(
        "pre_tool"
    ) == 1  # of the one that nobody told


def test_the_wait_of_a_held_call_belongs_to_the_call_that_its_agent_began(
    box: Served, agent: Agent, wire: Wire, example: Example
) -> None:
    rule(box, "mcp__example__write", "ask")
    agent.begins("toolu_1", path="/a")
    waiting = InBackground(lambda: wire.call("write", path="/a"))
    (request_id,) = pending(box)
    decide(box, request_id)
    assert text_of(waiting.result()) == "wrote /a"
    told(box, 2)
    agent.ends("toolu_1", path="/a")
    assert [row[0] for row in told(box, 3)] == ["pre_tool", "post_tool", "post_tool"]
    (where,) = box.sql(
        "SELECT c.session_id, x.tool_use_id FROM permission_context c JOIN event_context x ON x.event_id = c.event_id"
    )
    assert where[1] == "toolu_1"
    page = box.sign_in("viewer").get(f"/ui/sessions/{where[0]}/").text
    assert page.count('class="entry-body call-body"') == 1
    assert "Through the gateway: approved by approver" in page
    assert "Asked a person" in page
    (extra,) = box.sql("SELECT extra FROM event_context WHERE source = 'gateway'")
    assert set(json.loads(extra[0])["gateway"]) == {"server", "upstream_ms", "own_ms", "waited_ms"}


@pytest.mark.parametrize("lie", ["mcp__safe__example_write", "mcp__signalbox__safe__example__write"])
def test_a_hook_cannot_give_a_call_through_the_gateway_another_name(
    box: Served, agent: Agent, wire: Wire, lie: str
) -> None:
    agent.begins("toolu_1", lie, path="/a")
    wire.call("write", path="/a")
    ends = [row for row in told(box, 2) if row[0] == "post_tool"]
    assert [(row[1], row[3]) for row in ends] == [("mcp__example__write", "gateway")]


def test_a_note_does_not_go_to_whoever_may_be_the_session_s_agent(
    box: Served, agent: Agent, wire: Wire
) -> None:
    agent.begins("toolu_1", path="/a")
    wire.call("write", path="/a")  # with the agent's key, and nothing that says which session it is
    told(box, 2)
    ((session_id,),) = box.sql("SELECT DISTINCT session_id FROM event_context WHERE source = 'gateway'")
    person = box.sign_in("approver")
    written = person.post(f"/ui/sessions/{session_id}/-/note/", data={"text": "Not for others."})
    assert written.status_code in {200, 204, 302}, written.text
    given = "SELECT count(*) FROM session_notes WHERE given_at IS NULL"
    for _ in range(5):
        assert len(wire.call("write", path="/b")["content"]) == 1
    assert box.sql(given) == [(1,)]
    named = Wire(box)
    named.http.headers["X-Signalbox-Session"] = session_id
    named.initialize()
    deadline = time.monotonic() + PATIENCE
    while len(content := named.call("write", path="/c")["content"]) == 1:
        assert time.monotonic() < deadline, "nobody got it"
    assert "Not for others." in content[1]["text"]
