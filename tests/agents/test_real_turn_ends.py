"""A denial that ends the turn stops a real agent: its model is asked for nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.asking import hold
from tests.agents.connected import connect
from tests.agents.real_agents import Home
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
