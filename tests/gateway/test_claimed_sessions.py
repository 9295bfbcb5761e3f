"""A claim chooses among the running sessions of the agent that calls, as far as its key may write into them."""

from __future__ import annotations

import pytest
from django.utils import timezone

from coordinator.actions.mcp.gateway_timelines import reopen_or_create_timeline_session
from coordinator.identity.keys import KeyIdentity
from coordinator.mcp.protocol.agent_call_ids import AgentCallIds
from coordinator.models import Session
from tests.timelines import add_events, began, make_session

AGENT = "agent.one"
KEY = KeyIdentity(7, "one", frozenset({"agent"}), AGENT)
BY_SESSION, BY_CALL = AgentCallIds(session="own-2"), AgentCallIds(call_id="toolu_1")


@pytest.fixture(autouse=True)
def sessions(db: None) -> None:
    """Two of the agent that run, the second with the call that is claimed."""
    for number in (1, 2):
        known = {"executor_session_id": f"own-{number}", "agent_name": AGENT}
        session = make_session(f"ses_{number}", status="running", executor_profile="claude-code", **known)
        if number == 2:
            add_events(session, [began("write", {"path": "/a"}, tool_use_id="toolu_1", at=0)])


def joined(claim: AgentCallIds, key: KeyIdentity = KEY, agent: str = AGENT) -> str:
    return reopen_or_create_timeline_session(
        "gws-1", None, agent, key, timezone.now(), claim=claim
    ).session_id


@pytest.mark.parametrize("claim", [BY_SESSION, BY_CALL])
def test_a_claim_joins_the_session_that_it_means(claim: AgentCallIds) -> None:
    assert joined(claim) == "ses_2"


@pytest.mark.parametrize("claim", [BY_SESSION, BY_CALL])
def test_it_joins_none_of_another_agent_of_the_same_key(claim: AgentCallIds) -> None:
    both = KeyIdentity(7, "one", frozenset({"agent"}), agents=frozenset({AGENT, "agent.two"}))
    assert joined(claim, both) == "ses_2"
    assert joined(claim, both, "agent.two") not in {"ses_1", "ses_2"}


@pytest.mark.parametrize("claim", [BY_SESSION, BY_CALL])
def test_it_joins_none_that_the_key_may_not_write_into(claim: AgentCallIds) -> None:
    other = KeyIdentity(8, "two", frozenset({"agent"}), "agent.two")
    assert joined(claim, other) not in {"ses_1", "ses_2"}


@pytest.mark.parametrize("claim", [BY_SESSION, BY_CALL])
def test_it_joins_none_that_is_over(claim: AgentCallIds) -> None:
    Session.objects.filter(pk="ses_2").update(status="finished")
    assert joined(claim) == "ses_1", "the only one that runs"


def test_it_joins_none_where_it_may_mean_several() -> None:
    add_events(Session.objects.get(pk="ses_1"), [began("write", {}, tool_use_id="toolu_1", at=0)])
    assert joined(BY_CALL) not in {"ses_1", "ses_2"}
