from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coordinator.actions.agents import agents
from coordinator.actions.people import keys
from coordinator.chat.presence import agent_presence_status
from coordinator.errors import Conflict, Forbidden, NotFound, Unauthorized, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import Agent, AgentPlugin, AuditLog, ChatAttachment, ChatMessage, Grant

pytestmark = pytest.mark.django_db

CASES = json.loads((Path(__file__).parents[1] / "data" / "conformance" / "administration.json").read_text())
NOW = datetime(2026, 2, 23, 12, tzinfo=UTC)
BY = Actor("user", "ada")


@pytest.mark.parametrize("case", CASES["agent_status"]["cases"], ids=lambda case: case["id"])
def test_status_follows_the_heartbeat(case: dict[str, Any]) -> None:
    Agent.objects.create(id="agent.a", name="A", default_engine_id="e", enabled=case["enabled"])
    Agent.objects.filter(pk="agent.a").update(last_seen=case["last_seen_ms"])
    now = datetime.fromtimestamp(case["now_ms"] / 1000, UTC)
    within = timedelta(milliseconds=case["threshold_ms"])
    assert agent_presence_status(Agent.objects.get(pk="agent.a"), now, within) == case["expected"]


def busy_agent(agent_id: str = "agent.busy") -> Agent:
    """Return an agent with a message, an attachment, grants, a plugin and a key."""
    agent = agents.create_agent(agent_id, name="Busy", default_engine_id="mind.deepseek", actor=BY)
    message = ChatMessage.objects.create(
        id=f"m-{agent_id}", agent=agent, source="user", content=[], created_at=NOW
    )
    ChatAttachment.objects.create(
        id=f"a-{agent_id}",
        message=message,
        filename="x",
        mime_type="text/plain",
        size_bytes=1,
        storage_type="inline",
        inline_data=b"x",
        created_at=NOW,
    )
    Grant.objects.create(entry_type="server_grant", agent_id=agent_id, server_id="s", granted_at=NOW)
    agents.assign_plugin(agent_id, "mind.deepseek", actor=BY)
    return agent


def test_deleting_takes_everything_of_the_agent_and_nothing_of_others() -> None:
    busy_agent()
    busy_agent("agent.other")
    agents.delete_agent_with_data("agent.busy", actor=BY, now=NOW)
    for left in (
        ChatMessage.objects.filter(agent="agent.busy"),
        ChatAttachment.objects.filter(pk="a-agent.busy"),
        Grant.objects.filter(agent_id="agent.busy"),
        AgentPlugin.objects.filter(agent="agent.busy"),
        Agent.objects.filter(pk="agent.busy"),
    ):
        assert not left.exists()
    assert agents.count_agent_dependents_by_kind(["agent.other"]) == {
        "chat messages": 1,
        "chat attachments": 1,
        "grants": 1,
        "assigned plugins": 1,
        "API keys to be revoked": 0,
    }


def test_deleting_tells_what_went_along() -> None:
    busy_agent()
    agents.delete_agent_with_data("agent.busy", actor=BY, reason="retired")
    told = AuditLog.objects.get(event_type="AGENT_DELETED")
    assert (told.actor_id, told.target_id, told.reason) == ("user:ada", "agent.busy", "retired")
    assert told.metadata["before"]["name"] == "Busy"
    assert told.metadata["taken_along"]["chat messages"] == 1


def test_a_deleted_agents_key_opens_nothing_any_more() -> None:
    busy_agent()
    _, raw = keys.issue_api_key(name="k", scopes=["agent"], actor=BY, now=NOW, agent_id="agent.busy")
    agents.delete_agent_with_data("agent.busy", actor=BY, now=NOW)
    with pytest.raises(Unauthorized):
        keys.authenticate_api_key(raw, NOW)


def test_the_default_agent_stays() -> None:
    with pytest.raises(Conflict, match="default agent"):
        agents.delete_agent_with_data(agents.DEFAULT_AGENT, actor=BY)
    assert Agent.objects.filter(pk=agents.DEFAULT_AGENT).exists()


def test_deleting_what_is_not_there() -> None:
    with pytest.raises(NotFound):
        agents.delete_agent_with_data("agent.nobody", actor=BY)


def test_an_id_is_taken_once() -> None:
    agents.create_agent("agent.a", name="A", default_engine_id="e", actor=BY)
    with pytest.raises(Conflict, match="already"):
        agents.create_agent("agent.a", name="B", default_engine_id="e", actor=BY)


@pytest.mark.parametrize("bad", ["", "  ", " a", "a" * 201])
def test_an_id_must_name_something(bad: str) -> None:
    with pytest.raises(UnprocessableRequest):
        agents.create_agent(bad, name="A", default_engine_id="e", actor=BY)


def test_a_heartbeat_is_no_collision_but_an_edit_is() -> None:
    agent = agents.create_agent("agent.a", name="A", default_engine_id="e", actor=BY)
    seen = agents.compute_agent_version(agent)
    Agent.objects.filter(pk="agent.a").update(last_seen=NOW)
    agents.update_agent("agent.a", {"name": "B"}, actor=BY, seen_version=seen)
    with pytest.raises(Conflict, match="somebody else"):
        agents.update_agent("agent.a", {"description": "x"}, actor=BY, seen_version=seen)
    assert Agent.objects.get(pk="agent.a").description is None


def test_an_update_tells_before_and_after_of_what_changed() -> None:
    agents.create_agent("agent.a", name="A", default_engine_id="e", actor=BY)
    agents.update_agent("agent.a", {"name": "B", "default_engine_id": "e"}, actor=BY)
    told = AuditLog.objects.get(event_type="AGENT_UPDATED")
    assert told.metadata == {"before": {"name": "A"}, "after": {"name": "B"}}


def test_an_update_of_nothing_writes_nothing() -> None:
    agents.create_agent("agent.a", name="A", default_engine_id="e", actor=BY)
    agents.update_agent("agent.a", {"name": "A"}, actor=BY)
    assert not AuditLog.objects.filter(event_type="AGENT_UPDATED").exists()


def test_columns_beside_the_editable_ones_are_refused() -> None:
    agents.create_agent("agent.a", name="A", default_engine_id="e", actor=BY)
    with pytest.raises(UnprocessableRequest, match="power_password_hash"):
        agents.update_agent("agent.a", {"power_password_hash": None}, actor=BY)


def test_a_guarded_power_switch_is_not_switched_past_its_password() -> None:
    agents.create_agent("agent.a", name="A", default_engine_id="e", actor=BY)
    Agent.objects.filter(pk="agent.a").update(power_password_hash="$argon2id$x")
    with pytest.raises(Forbidden):
        agents.update_agent("agent.a", {"enabled": False}, actor=BY)
    agents.update_agent("agent.a", {"name": "B"}, actor=BY)
