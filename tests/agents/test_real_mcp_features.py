"""Real agents use more of a server than its tools through the gateway: prompts, resources, progress and elicitation.

They come to the server's own door, under a name of the agent's: the door of all servers has tools alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp.server.mcpserver import Context
from pydantic import BaseModel

from tests.agents import programs
from tests.agents.connected import connect
from tests.agents.real_agents import Home
from tests.agents.scripted_models import Use
from tests.gateway.agents import KEY, furnish
from tests.gateway.conftest import TABLES
from tests.gateway.example_server import Example, build, serving
from tests.gateway.test_claimed_calls import OF_GATEWAY, calls_shown
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
URI = "example://note"
# What each does beside calling `steps`: the tools that read a resource, and the prompt with which it is started.
READS = {
    "claude-code": Use("ReadMcpResourceTool", {"server": "direct", "uri": URI}),
    "codex": Use("read_mcp_resource", {"server": "direct", "uri": URI}),
}
PROMPTS = {"claude-code": "/mcp__direct__greet Ann", "codex": "Go."}


class Name(BaseModel):
    name: str


@pytest.fixture
def example() -> Iterator[Example]:
    """A server with a tool that reports progress and one that asks its caller, beside those of every example."""
    example = Example()
    server = build(example)

    @server.tool()
    async def steps(ctx: Context) -> str:
        """Go four steps."""
        for number in range(4):
            await ctx.report_progress(number, 4, f"step {number}")
        example.calls["steps"] += 1
        return "all steps"

    @server.tool()
    async def question(ctx: Context) -> str:
        """Ask who it is."""
        answer = await ctx.elicit("Who?", Name)
        example.calls[f"question {answer.action}"] += 1
        return answer.action

    with serving(server.streamable_http_app()) as example.url:
        yield example


@pytest.fixture
def box(served: Served, example: Example) -> Served:
    served.emptied(*TABLES, "sessions", "events", "event_context", "event_origins")
    furnish(served, example.url)
    return served


def add_server(home: Home, url: str) -> None:
    """Give the agent the server under a name of its own, as a person does in its settings."""
    headers = {"Authorization": f"Bearer {KEY}"}
    if home.agent.name == "codex":
        file = home.path / ".codex" / "config.toml"
        lines = [f'url = "{url}"', f'http_headers = {{ Authorization = "Bearer {KEY}" }}']
        file.write_text("\n".join([file.read_text(), "[mcp_servers.direct]", *lines, ""]))
        return
    file = home.path / ".claude.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    known.setdefault("mcpServers", {})["direct"] = {"type": "http", "url": url, "headers": headers}
    file.write_text(json.dumps(known))
    file = home.path / ".claude" / "settings.json"
    settings = json.loads(file.read_text())
    settings["permissions"]["allow"] += ["mcp__direct", "ReadMcpResourceTool"]
    file.write_text(json.dumps(settings))


@pytest.mark.parametrize(("agent", "program"), [("claude-code", "claude-code-newest"), ("codex", "codex")])
def test_prompts_resources_progress_and_questions_pass(
    box: Served, example: Example, tmp_path: Path, agent: str, program: str
) -> None:
    programs.needed(program)
    home = Home(agent, tmp_path, program)
    connect(home, box, key=KEY)
    add_server(home, f"{box.url}/mcp/example")
    tools = [Use("steps", {}), READS[agent]]
    tools += [Use("question", {})] if agent == "codex" else []  # a headless one declines
    run = home.starts(*tools, prompt=PROMPTS[agent], ENABLE_TOOL_SEARCH="false")
    try:
        asked = run.ended()
    finally:
        run.close()
        home.close()
    own = {"claude-code": ["greet Ann"], "codex": ["question decline"]}[agent]
    assert example.calls == dict.fromkeys(["steps", "note", *own], 1)
    assert "all steps" in json.dumps(asked[-1])
    assert "a note" in json.dumps(asked[-1])
    rows = box.sql(
        "SELECT e.event_type, c.source, c.tool_use_id, e.session_id FROM events e JOIN event_context c"
        " ON c.event_id = e.id WHERE e.tool_name LIKE '%steps'"
    )
    assert sorted(row[:2] for row in rows) == [
        ("post_tool", agent),
        ("post_tool", "gateway"),
        ("pre_tool", agent),
    ]
    ((_, session_id),) = {row[2:] for row in rows}
    assert calls_shown(box, session_id) >= len(tools)
    assert box.sql(OF_GATEWAY) == [] or [status for _, status in box.sql(OF_GATEWAY)] == ["finished"]
    read = (
        "SELECT count(*) FROM events WHERE tool_name = 'mcp__example__resources/read' AND event_type = 'post_tool'"
        " AND session_id = ?"
    )
    assert box.sql(read, (session_id,)) == [(1,)]
