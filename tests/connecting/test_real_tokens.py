"""Real agents, connected by the command, send their tokens, and none is kept up where the server is away."""

from __future__ import annotations

import json
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


def test_gemini_cli_is_neither_slow_nor_loud_while_the_server_is_away(served: Served, tmp_path: Path) -> None:
    """Its exporter, which older versions set up, took 9 s for this and printed three stack traces."""
    programs.needed("gemini")
    home = Home("gemini", tmp_path)
    machine, run = Machine(tmp_path / "machine", home.path), None
    try:
        words = ("connect", "gemini", "--url", served.url, "--yes", "--key-file", "-")
        assert machine.run(*words, given=f"{KEYS['agent']}\n").returncode == 0
        connection = home.path / ".config" / "signalbox" / "client.json"
        known = json.loads(connection.read_text())
        known["agents"]["gemini"]["hold"] = False  # no rule holds a call
        connection.write_text(json.dumps({**known, "url": "http://127.0.0.1:9"}))
        began = time.monotonic()
        run = home.starts("echo hello")
        run.ended()
        took, output = time.monotonic() - began, run.output()
        assert "Done." in output
        assert "    at " not in output
        assert "ECONNREFUSED" not in output
        assert took < 7.5, f"{took:.1f} s: {output}"
    finally:
        if run is not None:
            run.close()
        home.close()
