"""Real agents that resume a session or start a sub-agent leave no session beside it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import programs
from tests.agents.connected import connect
from tests.agents.real_agents import Home
from tests.agents.scripted_models import Use
from tests.client.programs import until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]


@pytest.fixture
def connected(served: Served, tmp_path: Path) -> Iterator[Callable[..., Home]]:
    homes: list[Home] = []

    def make(agent: str, program: str) -> Home:
        programs.needed(program)
        homes.append(Home(agent, tmp_path / agent, program))
        connect(homes[-1], served)
        return homes[-1]

    yield make
    for home in homes:
        home.close()


def rows(served: Served, what: str) -> list[Any]:
    """Return something of the events of all sessions but that of connect's own trial."""
    return served.sql(
        f"SELECT {what} FROM sessions s JOIN events e ON e.session_id = s.session_id"
        " JOIN event_context c ON c.event_id = e.id"
        " WHERE s.executor_session_id NOT LIKE 'signalbox-test-%' ORDER BY e.id"
    )


def wait_for_requests(served: Served, number: int) -> None:
    """Wait until the telemetry of so many requests to the model is there; it goes out before its program ends."""
    with until() as pause:
        while sum(tokens is not None for (tokens,) in rows(served, "c.output_tokens")) < number:
            pause()


@pytest.mark.parametrize("program", ["claude-code", "claude-code-newest"])
def test_claude_code_that_goes_on_with_a_session_leaves_no_other(
    served: Served, connected: Callable[..., Home], program: str
) -> None:
    home = connected("claude-code", program)
    home.starts("echo one").ended()
    wait_for_requests(served, 2)
    words = [*home.command, "-p", "More.", "--continue"]
    subprocess.run(
        words, cwd=home.work, env=home.environment, stdin=subprocess.DEVNULL, check=True, capture_output=True
    )
    wait_for_requests(served, 3)
    starts = [name for (name,) in rows(served, "e.reason") if name in {"startup", "resume"}]
    assert starts == ["startup", "resume"]
    assert len(set(rows(served, "s.session_id"))) == 1


def test_a_sub_agent_of_codex_is_part_of_its_session_with_its_tokens(
    served: Served, connected: Callable[..., Home]
) -> None:
    home = connected("codex", "codex")
    kid = Use("spawn_agent", {"task_name": "kid", "message": "Say hi.", "agent_type": "default"})
    run = home.starts(kid, "echo after")
    run.ended()
    wait_for_requests(served, len(home.script.requests))
    assert len(set(rows(served, "s.session_id"))) == 1
    said = [
        json.loads(content)[0]["text"]
        for role, content, subagent in rows(served, "e.role, e.content, c.subagent")
        if role == "user" and subagent
    ]
    assert set(said) == {"Say hi."}
    used = [subagent for tokens, subagent in rows(served, "c.output_tokens, c.subagent") if tokens]
    assert {bool(subagent) for subagent in used} == {True, False}
