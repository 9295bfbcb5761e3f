"""A driven agent gets a gateway key only as an agent that its runner's key speaks for, or as its blueprint."""

from __future__ import annotations

import pytest

from coordinator.actions.people import session_keys
from coordinator.models import ApiKey, Run, Runner, RunnerOffers
from tests.approvals.factories import NOW

pytestmark = pytest.mark.django_db


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Runner:
    """A runner that offers Claude Code, where every agent may call some tool."""
    monkeypatch.setattr(session_keys.reach, "can_agent_reach_any_tool", lambda *_: True)
    row = Runner.objects.create(
        runner_id="rnr_1",
        hostname="h",
        project_dir="/p",
        executor_profile="claude",
        registered_at=NOW,
        last_heartbeat=NOW,
        registered_by="r",
    )
    RunnerOffers.objects.create(runner=row, offers={"agents": [{"name": "claude"}], "directories": ["/p"]})
    return row


def gateway_agent(runner: Runner, blueprint: str | None = None) -> str | None:
    return session_keys.find_gateway_key_agent_id(Run(agent_name=blueprint), runner, "claude", NOW)


def make_key(*, agent_id: str | None = None, agent_ids: object = None) -> None:
    ApiKey.objects.create(
        name="r",
        prefix="sbx_",
        key_hash="k",
        scopes=["runner", "agent"],
        agent_id=agent_id,
        agent_ids=agent_ids,
        created_at=NOW,
    )


@pytest.mark.parametrize("agent_ids", [["agent.a", "agent.b"], [], "claude-code"])
def test_a_program_that_the_runners_key_is_not_bound_to_gets_no_key(
    runner: Runner, agent_ids: object
) -> None:
    """An unreadable list binds a key to nobody."""
    make_key(agent_ids=agent_ids)
    assert gateway_agent(runner) is None


def test_a_program_among_the_agents_of_the_runners_key_calls_as_itself(runner: Runner) -> None:
    make_key(agent_ids=["agent.a", "claude-code"])
    assert gateway_agent(runner) == "claude-code"


def test_under_a_key_that_is_bound_to_one_agent_a_program_calls_as_that_agent(runner: Runner) -> None:
    make_key(agent_id="agent.a")
    assert gateway_agent(runner) == "agent.a"


def test_a_key_that_one_of_two_agents_is_left_of_is_bound_to_that_one(runner: Runner) -> None:
    make_key(agent_ids=["agent.a"])
    assert gateway_agent(runner) == "agent.a"


def test_under_a_key_that_is_bound_to_no_agent_a_program_calls_as_itself(runner: Runner) -> None:
    make_key()
    assert gateway_agent(runner) == "claude-code"


def test_a_blueprint_comes_before_the_agents_of_the_runners_key(runner: Runner) -> None:
    make_key(agent_ids=["agent.a", "agent.b"])
    assert gateway_agent(runner, "coder") == "coder"
