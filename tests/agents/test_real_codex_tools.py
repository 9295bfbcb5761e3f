"""Which of Codex's tools call the hook: those that are said to have none do not, and the others do."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.sessions.unguarded_calls import TOOLS_WITHOUT_HOOK
from tests.agents import programs
from tests.agents.connected import connect
from tests.agents.real_agents import Home
from tests.agents.scripted_models import Use
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.one_engine]
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(params=["codex", "codex-newest"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    programs.needed(request.param)
    home = Home("codex", tmp_path / "home", request.param)
    yield home
    home.close()


def test_every_tool_but_those_without_a_hook_is_reported_before_it_runs(served: Served, home: Home) -> None:
    connect(home, served)
    picture = home.work / "dot.png"
    picture.write_bytes(base64.b64decode(DOT))
    run = home.starts(
        Use("write_stdin", {"session_id": 1, "chars": "x"}),
        Use("view_image", {"path": str(picture)}),
        Use("get_goal", {}),
        "touch marker",
    )
    requests = run.ended()
    run.close()
    called = {item["name"] for item in requests[-1]["input"] if item.get("type") == "function_call"}
    reported = {
        str(tool) for (tool,) in served.sql("SELECT tool_name FROM events WHERE event_type = 'pre_tool'")
    }
    assert called == {"write_stdin", "view_image", "get_goal", "exec_command"}
    assert {"view_image", "get_goal", "Bash"} <= reported
    assert not reported & TOOLS_WITHOUT_HOOK["codex"]
