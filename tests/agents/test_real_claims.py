"""Real agents say of a call through the gateway which of their own it is, and it is one row of their own session.

Another session of the same agent runs meanwhile, so nothing else tells where the call belongs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.connected import connect
from tests.agents.real_agents import Home
from tests.agents.scripted_models import Use
from tests.gateway.agents import KEY, furnish, rule
from tests.gateway.conftest import TABLES
from tests.gateway.example_server import Example, running
from tests.gateway.test_claimed_calls import FIRST, OF_GATEWAY, Hooks, calls_shown
from tests.gateway.test_held_calls import decide, pending
from tests.patience import until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]


@pytest.fixture
def example() -> Iterator[Example]:
    with running() as found:
        yield found


@pytest.fixture
def box(served: Served, example: Example) -> Served:
    served.emptied(*TABLES, "sessions", "events", "event_context", "event_origins")
    furnish(served, example.url)
    rule(served, "mcp__example__write", "ask")
    return served


@pytest.mark.parametrize(
    ("agent", "program"),
    [("claude-code", "claude-code"), ("claude-code", "claude-code-newest"), ("codex", "codex-newest")],
)
def test_a_call_is_one_row_of_the_session_that_makes_it(
    box: Served, example: Example, tmp_path: Path, agent: str, program: str
) -> None:
    programs.needed(program)
    Hooks(box, FIRST)
    home = Home(agent, tmp_path, program)
    connect(home, box, key=KEY)
    # The newest Claude Code offers an MCP server's tools only once the model has searched for them.
    run = home.starts(Use("example__write", {"path": "/srv/first"}), ENABLE_TOOL_SEARCH="false")
    try:
        (request_id,) = pending(box)
        page = box.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
        assert f"in {home.work.name}" in page
        decide(box, request_id)
        run.ended()
    finally:
        run.close()
        home.close()
    assert example.calls == {"write /srv/first": 1}
    told = (
        "SELECT e.event_type, e.session_id, c.tool_use_id, c.source, s.executor_session_id FROM events e"
        " JOIN event_context c ON c.event_id = e.id JOIN sessions s ON s.session_id = e.session_id"
        " WHERE e.tool_name LIKE '%write'"
    )
    until(lambda: len(box.sql(told)) == 3)  # the agent's last hook may come after its end
    rows = box.sql(told)
    agent_sources = {agent, "telemetry"}
    sources = sorted((kind, "own" if source in agent_sources else source) for kind, _, _, source, _ in rows)
    assert sources == [  # the agent's hook or its telemetry: the one that came first
        ("post_tool", "gateway"),
        ("post_tool", "own"),
        ("pre_tool", "own"),
    ]
    ((session_id, _, own),) = {(row[1], row[2], row[4]) for row in rows}
    assert own != FIRST
    assert calls_shown(box, session_id) == 1
    assert box.sql(OF_GATEWAY) == []
    ((where,),) = box.sql("SELECT session_id FROM permission_context")
    assert where == session_id
    ((bound,),) = box.sql("SELECT metadata FROM permission_requests")
    assert json.loads(bound)["client"]
