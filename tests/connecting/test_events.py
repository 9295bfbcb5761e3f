"""What agents' settings call is what their dialects hear: every hook that holds a call has the time to wait for it."""

from __future__ import annotations

import pytest

from coordinator.client import hook_agents
from coordinator.client.connecting import connectable_agents
from coordinator.client.connecting.connectable_agents import CONNECTABLE_AGENTS, QUICK
from coordinator.dialects.dialect_registry import DIALECTS

EVENTS = {
    "claude-code": connectable_agents.CLAUDE_CODE_EVENTS,
    "codex": connectable_agents.CODEX_EVENTS,
    "gemini": connectable_agents.GEMINI_EVENTS,
    "qwen-code": connectable_agents.QWEN_CODE_EVENTS,
    "copilot": connectable_agents.COPILOT_EVENTS,
    "cursor": connectable_agents.CURSOR_EVENTS,
    "goose": connectable_agents.GOOSE_EVENTS,
}


@pytest.mark.parametrize("name", [name for name in EVENTS if name in DIALECTS])
def test_what_holds_a_call_may_wait_and_nothing_else_does(name: str) -> None:
    waiting = {event for event, seconds in EVENTS[name].items() if seconds > QUICK}
    assert waiting
    assert waiting <= DIALECTS[name].calls
    assert not {event for event, seconds in EVENTS[name].items() if seconds <= QUICK} & DIALECTS[name].calls
    # What starts a session and ends it is told, so that the test at the end of connecting is one.
    assert CONNECTABLE_AGENTS[name].trial is not None


@pytest.mark.parametrize("name", hook_agents.HOOK_AGENTS)
def test_whatever_the_command_answers_for_can_be_connected(name: str) -> None:
    if CONNECTABLE_AGENTS[name].plugin:
        return
    assert name in EVENTS
    waiting = {event for event, seconds in EVENTS[name].items() if seconds > QUICK}
    assert waiting <= set(hook_agents.HOOK_AGENTS[name].calls)


def test_qwen_code_s_hook_answers_before_the_call_is_let_go() -> None:
    """It does that after 60 s (recorded with 0.24.4: a hook with a timeout of 590 that denied after 75)."""
    (waiting,) = {seconds for seconds in connectable_agents.QWEN_CODE_EVENTS.values() if seconds > QUICK}
    assert waiting < hook_agents.HOOK_AGENTS["qwen-code"].timeout == 60
