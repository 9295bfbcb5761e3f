"""The real Claude Code without a screen waits longer than a hook may: by a tool that asks, or ended and resumed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.dialects.claude_settings import WAIT
from tests.agents import programs
from tests.agents.connected import paste
from tests.agents.real_agents import PROMPT, Home
from tests.agents.test_real_claude_code import asked, decide
from tests.claude_code.test_deciding import rules
from tests.served import KEYS, Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
TOUCH = "touch marker"
JSON_LINES = ("--output-format", "stream-json", "--verbose")


@pytest.fixture(scope="module", autouse=True)
def program() -> None:
    programs.needed("claude-code")


@pytest.fixture
def served(served: Served) -> Served:
    rules(served)
    return served


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home("claude-code", tmp_path / "agent")
    yield home
    home.close()


def start(home: Home, *words: str) -> Any:
    home.agent = replace(home.agent, words=(*words, *JSON_LINES))
    return home.starts(TOUCH)


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_the_tool_that_asks_decides(served: Served, home: Home, verdict: str) -> None:
    (home.path / ".claude" / "settings.json").write_text("{}")  # nothing is allowed by itself
    home.environment |= {"SIGNALBOX_URL": served.url, "SIGNALBOX_KEY": KEYS["agent"]}
    command = [sys.executable, "-m", "coordinator.client.main", "mcp-ask"]
    server = {
        "command": command[0],
        "args": command[1:],
        "env": {"PYTHONPATH": home.environment["PYTHONPATH"]},
    }
    servers = json.dumps({"mcpServers": {"signalbox": server}})
    run = start(
        home, "-p", PROMPT, "--mcp-config", servers, "--permission-prompt-tool", "mcp__signalbox__ask"
    )
    try:
        asked(served)
        assert not home.ran("marker")
        decide(served, verdict)
        run.ended()
    finally:
        run.close()
    assert home.ran("marker") is (verdict == "approved")


def test_a_run_that_nobody_answers_ends_and_runs_the_call_when_it_is_resumed(
    served: Served, home: Home
) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask", "wait_seconds": 1, "deny_at_deadline": True})
    paste(home, served)
    settings_of(home, lambda text: text.replace(f"?wait={WAIT}", f"?wait={WAIT}&defer=on"), tell_entrypoint)
    run = start(home, "-p", PROMPT)
    run.ended()
    ended = [json.loads(line) for line in run.output().splitlines() if '"type":"result"' in line]
    assert [one["stop_reason"] for one in ended] == ["tool_deferred"]
    assert not home.ran("marker")
    decide(served, "approved")
    start(home, "-p", "--resume", ended[0]["session_id"]).ended()
    assert home.ran("marker")


def settings_of(home: Home, *changes: Callable[[str], str]) -> None:
    path = home.path / ".claude" / "settings.json"
    text = path.read_text()
    for change in changes:
        text = change(text)
    path.write_text(text)


def tell_entrypoint(text: str) -> str:
    """Have the hooks say how Claude Code was started, as .docs/approvals.md shows."""
    settings = json.loads(text)
    for groups in settings["hooks"].values():
        for hook in (hook for group in groups for hook in group["hooks"] if hook["type"] == "http"):
            hook["headers"]["X-Signalbox-Entrypoint"] = "$CLAUDE_CODE_ENTRYPOINT"
            hook["allowedEnvVars"].append("CLAUDE_CODE_ENTRYPOINT")
    return json.dumps(settings)
