"""Real agents, connected by the command, send their tokens; disconnected, their settings are as they were."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.real_agents import Home
from tests.connecting.machines import Machine
from tests.served import KEYS, Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
# Where each keeps its settings for telemetry.
SETTINGS = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
}
TOLD = (
    "SELECT count(*) FROM event_context c JOIN sessions s ON s.session_id = c.session_id"
    " WHERE c.output_tokens > 0 AND s.executor_profile = ?"
)


@pytest.mark.parametrize("agent", SETTINGS)
def test_its_tokens_arrive_once_it_is_connected(served: Served, agent: str, tmp_path: Path) -> None:
    programs.needed(agent)
    home = Home(agent, tmp_path)
    machine, settings = Machine(tmp_path / "machine", home.path), home.path / SETTINGS[agent]
    before = settings.read_bytes()
    run = None
    try:
        words = ("connect", agent, "--url", served.url, "--yes", "--key-file", "-")
        done = machine.run(*words, given=f"{KEYS['agent']}\n")
        assert KEYS["agent"] not in done.stdout + done.stderr
        run = home.starts("echo hello")
        run.ended()
        deadline = time.monotonic() + 60
        while served.sql(TOLD, (agent,)) == [(0,)] and time.monotonic() < deadline:
            time.sleep(0.2)
        assert served.sql(TOLD, (agent,)) != [(0,)], run.output()
        assert served.sql("SELECT count(*) FROM sessions WHERE executor_profile = ?", (agent,)) == [(1,)]
        assert machine.run("disconnect").returncode == 0
        if agent != "codex":  # which writes down there which hooks it trusts
            assert settings.read_bytes() == before
        assert KEYS["agent"].encode() not in settings.read_bytes()
    finally:
        if run is not None:
            run.close()
        home.close()
