"""Real agents, connected by the command, send their tokens; disconnected, their settings are as they were."""

from __future__ import annotations

import time
from collections import Counter
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


def told_by(served: Served, agent: str) -> Counter[tuple[str, str | None]]:
    """Return how often the agent's session tells its call and its prompt, of which hooks and telemetry both tell."""
    return Counter(
        served.sql(
            "SELECT e.event_type, e.role FROM events e JOIN sessions s ON s.session_id = e.session_id"
            " WHERE s.executor_profile = ? AND (e.event_type LIKE '%_tool' OR e.role = 'user')",
            (agent,),
        )
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
        assert told_by(served, agent) == {
            ("pre_tool", None): 1,
            ("post_tool", None): 1,
            ("message", "user"): 1,
        }
        assert machine.run("disconnect").returncode == 0
        assert settings.read_bytes() == before
    finally:
        if run is not None:
            run.close()
        home.close()
