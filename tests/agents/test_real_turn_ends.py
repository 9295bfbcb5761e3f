"""A denial that ends the turn stops a real agent: its model is asked for nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.asking import asked, decide, hold, waiting
from tests.agents.connected import connect
from tests.agents.real_agents import PROMPT, Home
from tests.agents.terminals import Terminal
from tests.agents.test_real_terminals import asked_at, terminal_home
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.one_engine]


@pytest.fixture(params=[("claude-code", "claude-code-newest"), ("gemini", "gemini")], ids="-".join)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    agent, program = request.param
    programs.needed(program)
    home = Home(agent, tmp_path / "home", program)
    yield home
    home.close()


@pytest.mark.parametrize("stops_turn", [True, False])
def test_a_denial_stops_the_agent_where_its_rule_ends_the_turn(
    served: Served, home: Home, stops_turn: bool
) -> None:
    connect(home, served)
    hold(served, "touch denied", verdict="deny", deny_at_deadline=False, stops_turn=stops_turn)
    run = home.starts("touch denied", "touch next")
    requests = run.ended()
    run.close()
    assert not home.ran("denied")
    assert home.ran("next") is not stops_turn
    assert len(requests) == (1 if stops_turn else 3)


@pytest.mark.parametrize(("verdict", "requests"), [("denied-turn-ended", 1), ("denied", 3)])
def test_a_person_who_denies_a_call_ends_the_turn_where_they_say_so(
    served: Served, home: Home, verdict: str, requests: int
) -> None:
    connect(home, served)
    hold(served, "touch denied")
    run = home.starts("touch denied", "touch next")
    request_id = asked(served, home.agent.name, "touch denied")
    assert request_id is not None
    decide(served.sign_in("approver"), request_id, verdict, reason="Not today.")
    model_requests = run.ended()
    run.close()
    assert not home.ran("denied")
    assert home.ran("next") is (verdict == "denied")
    assert len(model_requests) == requests


def test_a_denial_of_what_claude_code_itself_asks_ends_the_turn(served: Served, tmp_path: Path) -> None:
    programs.needed("claude-code-newest")
    served.sql("DELETE FROM tool_rules")
    with ExitStack() as opened:
        home = terminal_home(opened, "claude-code", tmp_path, "claude-code-newest")
        (home.path / ".claude" / "settings.json").write_text("{}")
        connect(home, served)
        home.script.commands = ("touch made", "touch next")
        terminal = Terminal(home, ["--permission-mode", "default", PROMPT])
        opened.callback(terminal.close)
        request_id = asked_at(served, terminal, "claude-code")
        decide(served.sign_in("approver"), request_id, "denied-turn-ended", reason="Not today.")
        terminal.shows("Interrupted")
        assert not home.ran("made")
        assert waiting(served, "claude-code", "touch next") is None
        assert len(home.script.requests) == 1
