"""The live fleet at a real server: every agent program holds a session by its hooks, and agents are there."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from coordinator.demo import live, terminals
from coordinator.demo.cast import AT_TERMINALS, TEAMS, TRADES
from coordinator.demo.live import DemoApiClient, DemoFleet
from coordinator.demo.tasks import PermissionStep, ToolCallStep
from coordinator.demo.terminals import DemoTerminal
from tests.served import KEYS, Served

pytestmark = pytest.mark.served

FIXER = next(trade for trade in TRADES if trade.name == "fixer")


@pytest.fixture
def fleet(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[DemoFleet]:
    """A fleet that takes no time over its calls."""
    monkeypatch.setattr(live, "SPEED", 1e9)
    monkeypatch.setattr(terminals, "WAIT", 1)
    fleet = DemoFleet(DemoApiClient(served.url, KEYS["all"], "build-01"), print, Random(7))
    yield fleet
    fleet.over.set()


def at(fleet: DemoFleet, name: str) -> DemoTerminal:
    return DemoTerminal(fleet, name, TEAMS[0], FIXER, fleet.api)


@pytest.mark.parametrize("name", AT_TERMINALS)
def test_a_program_holds_a_whole_session_in_its_terminal(served: Served, fleet: DemoFleet, name: str) -> None:
    at(fleet, name).run_terminal_session()
    ((session, host, status),) = served.sql(
        "SELECT session_id, hostname, status FROM sessions WHERE executor_profile = ?", (name,)
    )
    assert (host, status) == ("build-01", "finished")
    kinds = served.sql("SELECT event_type, tool_name FROM events WHERE session_id = ?", (session,))
    begun = sum(kind == "pre_tool" for kind, _ in kinds)
    assert begun > 3
    assert sum(kind == "post_tool" for kind, _ in kinds) >= begun - 1  # what nobody allowed has no result
    assert {"session_start", "session_stop", "message"} <= {kind for kind, _ in kinds}


def test_a_call_that_nobody_allows_is_not_made(served: Served, fleet: DemoFleet) -> None:
    for name in AT_TERMINALS:
        terminal = at(fleet, name)
        terminal.session = f"silent-{name}"
        push = ToolCallStep("Bash", {"command": "git push"}, {"stdout": "pushed"})
        assert (
            terminal.play_step_and_report_continuation(
                PermissionStep("ProcessExecution", "git push", "To share it.", push)
            )
            is False
        )
    assert served.sql("SELECT count(*) FROM events WHERE event_type = 'post_tool'") == [(0,)]
    waited = served.sql("SELECT plugin_id FROM permission_requests")
    assert {plugin for (plugin,) in waited} == set(AT_TERMINALS)


def test_agents_send_heartbeats_and_those_that_are_switched_off_do_not(
    served: Served, fleet: DemoFleet
) -> None:
    for name, enabled in (("agent.checkout_fixer", True), ("agent.checkout_tester", False)):
        served.sql(
            "INSERT INTO agents (id, name, default_engine_id, enabled, last_seen) VALUES (?, ?, 'mind.x', ?, 1000)",
            (name, name, enabled),
        )
    live.refresh_enabled_and_send_heartbeats(fleet)
    seen = dict(served.sql("SELECT id, last_seen FROM agents WHERE id LIKE 'agent.checkout%'"))
    assert seen["agent.checkout_fixer"] > 1000
    assert seen["agent.checkout_tester"] == 1000
    assert fleet.switched_off == {"checkout-tester"}
