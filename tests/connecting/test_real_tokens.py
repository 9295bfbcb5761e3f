"""The real Claude Code, connected by the command, sends its tokens with a key that stands in no settings of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.real_agents import Home
from tests.connecting.machines import Machine
from tests.served import KEYS, Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    programs.needed("claude-code")
    home = Home("claude-code", tmp_path)
    yield home
    home.close()


def test_tokens_of_claude_code_arrive_by_its_headers_helper(
    served: Served, home: Home, tmp_path: Path
) -> None:
    machine, settings = Machine(tmp_path / "machine", home.path), home.path / ".claude" / "settings.json"
    before = settings.read_bytes()
    words = ("connect", "claude-code", "--url", served.url, "--yes", "--key-file", "-")
    done = machine.run(*words, given=f"{KEYS['agent']}\n")
    assert "claude-code" in done.stdout + done.stderr
    assert KEYS["agent"].encode() not in settings.read_bytes()
    run = home.starts()
    try:
        run.ended()
        told = "SELECT count(*) FROM event_context WHERE output_tokens > 0"
        deadline = time.monotonic() + 60
        while served.sql(told) == [(0,)] and time.monotonic() < deadline:
            time.sleep(0.2)
        assert served.sql(told) != [(0,)], run.output()
    finally:
        run.close()
    assert machine.run("disconnect").returncode == 0
    assert settings.read_bytes() == before
