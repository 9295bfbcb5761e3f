"""What agents' settings call is what their dialects hear: every hook that holds a call has the time to wait for it."""

from __future__ import annotations

import pytest

from coordinator.client import agents as hooks
from coordinator.client.connecting import agents
from coordinator.client.connecting.agents import AGENTS, QUICK, WAITING
from coordinator.dialects.loaded import DIALECTS

EVENTS = {
    "claude-code": agents.CLAUDE_CODE_EVENTS,
    "codex": agents.CODEX_EVENTS,
    "gemini": agents.GEMINI_EVENTS,
    "copilot": agents.COPILOT_EVENTS,
    "cursor": agents.CURSOR_EVENTS,
    "goose": agents.GOOSE_EVENTS,
}


@pytest.mark.parametrize("name", [name for name in EVENTS if name in DIALECTS])
def test_what_holds_a_call_may_wait_and_nothing_else_does(name: str) -> None:
    waiting = {event for event, seconds in EVENTS[name].items() if seconds == WAITING}
    assert waiting
    assert waiting <= DIALECTS[name].calls
    assert not {event for event, seconds in EVENTS[name].items() if seconds <= QUICK} & DIALECTS[name].calls
    # What starts a session and ends it is told, so that the test at the end of connecting is one.
    assert AGENTS[name].trial is not None


@pytest.mark.parametrize("name", hooks.AGENTS)
def test_whatever_the_command_answers_for_can_be_connected(name: str) -> None:
    assert name in EVENTS
    waiting = {event for event, seconds in EVENTS[name].items() if seconds == WAITING}
    assert waiting <= set(hooks.AGENTS[name].calls)
