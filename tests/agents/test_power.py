"""The power switch: its recorded cases, its password, its limits; and the status that follows from heartbeats."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from coordinator.actions.policy import agent_power
from coordinator.chat.presence import agent_presence_status
from coordinator.errors import BadRequest, Conflict, Forbidden, NotFound, TooManyRequests
from coordinator.identity.actors import Actor
from coordinator.models import Agent, AuditLog
from tests.chat.rows import add_agent

pytestmark = pytest.mark.django_db
CASES = json.loads((Path(__file__).parents[1] / "data" / "conformance" / "agents.json").read_text())
VECTOR = CASES["password_hash"]["vector"]
BY = Actor("user", "anna")


@pytest.fixture
def now() -> datetime:
    """The present: the database's own clock clears the audit log, so a day long past would vanish from it."""
    return timezone.now().replace(microsecond=0)


def from_ms(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize("case", CASES["agent_status"]["cases"], ids=lambda case: case["id"])
def test_status_is_as_recorded(case):
    agent = add_agent(enabled=case["enabled"], last_seen=from_ms(case["last_seen_ms"]))
    agent.refresh_from_db()
    within = timedelta(milliseconds=case["threshold_ms"])
    assert agent_presence_status(agent, from_ms(case["now_ms"]), within) == case["expected"]


def test_pw_1_switched_on_an_agent_is_online(now):
    add_agent(enabled=False)
    agent_power.set_agent_enabled("agent.robot", True, actor=BY, now=now)
    agent = Agent.objects.get(pk="agent.robot")
    assert (agent.enabled, agent.last_seen, agent_presence_status(agent, now)) == (True, now, "online")


def test_pw_3_and_4_a_guarded_switch_wants_its_password(now):
    add_agent(power_password_hash=VECTOR["phc"])
    with pytest.raises(BadRequest, match="Password required"):
        agent_power.set_agent_enabled("agent.robot", False, actor=BY, now=now)
    with pytest.raises(Forbidden):
        agent_power.set_agent_enabled("agent.robot", False, actor=BY, password="wrong", now=now)
    assert Agent.objects.get(pk="agent.robot").enabled
    agent_power.set_agent_enabled("agent.robot", False, actor=BY, password=VECTOR["password"], now=now)
    assert not Agent.objects.get(pk="agent.robot").enabled


def test_pw_7_an_unknown_agent_is_not_found(now):
    with pytest.raises(NotFound):
        agent_power.set_agent_enabled("agent.nobody", True, actor=BY, now=now)


def test_wrong_passwords_are_written_down_and_soon_refused(now):
    add_agent(power_password_hash=VECTOR["phc"])
    for _ in range(5):
        with pytest.raises(Forbidden):
            agent_power.set_agent_enabled("agent.robot", False, actor=BY, password="wrong", now=now)
    with pytest.raises(TooManyRequests):
        agent_power.set_agent_enabled("agent.robot", False, actor=BY, password=VECTOR["password"], now=now)
    assert AuditLog.objects.filter(event_type="AGENT_POWER_REFUSED", target_id="agent.robot").count() == 5
    assert "wrong" not in "".join(str(row.metadata) for row in AuditLog.objects.all())
    later = now + timedelta(minutes=11)
    agent_power.set_agent_enabled("agent.robot", False, actor=BY, password=VECTOR["password"], now=later)


def test_a_stored_password_has_the_recorded_form(now):
    add_agent()
    agent_power.set_power_switch_password("agent.robot", "hunter2", actor=BY, now=now)
    stored = Agent.objects.get(pk="agent.robot").power_password_hash
    assert stored is not None
    kind, version, parameters, salt, digest = stored.split("$")[1:]
    assert (kind, version, parameters, len(salt), len(digest)) == (
        "argon2id",
        "v=19",
        "m=19456,t=2,p=1",
        22,
        43,
    )
    agent_power.set_agent_enabled("agent.robot", False, actor=BY, password="hunter2", now=now)


def test_a_hash_that_cannot_be_read_is_told_and_can_be_removed(now):
    add_agent(power_password_hash="plain")
    with pytest.raises(Conflict, match="cannot be read"):
        agent_power.set_agent_enabled("agent.robot", False, actor=BY, password="plain", now=now)
    agent_power.set_power_switch_password("agent.robot", None, actor=BY, now=now)
    agent_power.set_agent_enabled("agent.robot", False, actor=BY, now=now)


def test_setting_and_removing_a_password_is_audited_without_it(now):
    add_agent()
    agent_power.set_power_switch_password("agent.robot", "hunter2", actor=BY, now=now)
    agent_power.set_power_switch_password("agent.robot", None, actor=BY, now=now)
    rows = AuditLog.objects.filter(target_id="agent.robot").order_by("id")
    assert [row.event_type for row in rows] == ["AGENT_PASSWORD_SET", "AGENT_PASSWORD_REMOVED"]
    assert "hunter2" not in str([row.metadata for row in rows])
