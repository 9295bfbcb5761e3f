"""The id of a deleted agent is given to no other while anything names it: a name is no identity."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import models
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.agents import agents, blueprints, deleted_agents
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.people import connecting, keys
from coordinator.actions.policy import budgets, tool_rules
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor, key_actor_by_name
from coordinator.models import (
    Agent,
    ApiKey,
    AuditLog,
    Budget,
    ConnectCode,
    DeletedAgent,
    PermissionRequest,
    Session,
    SessionKey,
    ToolRule,
)
from coordinator.policy.requests.approvals import PermissionSubject, Scope, Validity
from coordinator.policy.rules import tool_rules as policy
from coordinator.policy.rules.tool_rules import DecisionRule
from tests.access.cases import add_agents
from tests.people import person as new_person
from tests.people import signed_in

pytestmark = pytest.mark.django_db
ANN = Actor("user", "ann")
ID = "agent.deploy"

NAMES_AN_AGENT = re.compile(r"(agent|agent_id|agent_ids|agent_name|agents)$")
COUNTED = {
    "ApiKey.agent_id", "ChatMessage.agent", "ConnectCode.agent_id", "DecidingRule.agent", "GatewaySession.agent_id",
    "Grant.agent_id", "PermissionContext.agent_id", "Run.agent_name", "Session.agent_name", "SessionKey.agent_id",
    "ToolRule.agents",
}  # fmt: skip
NOT_COUNTED = {
    "ActivityHour.agent_name": "is a picture of the last weeks, and decides nothing",
    "AgentName.agent": "goes with the agent",
    "AgentPlugin.agent": "goes with the agent",
    "AgentToolListing.agent_id": "shows fewer tools, and decides nothing about what may be called",
    "ApiKey.agent_ids": "is taken out with the agent",
    "ReadMark.agent_id": "goes with the agent",
    "McpAgentPerson.agent_id": "goes with the agent",
    "DeletedAgent.agent_id": "the note of it",
    "DrivenSession.agent": "the program's name",
    "EventContext.subagent": "a part of one session's agent",
    "ModelRequestUsage.subagent": "a part of one session's agent",
    "GatewayCall.agent_id": "told to its key alone",
    "CachedResult.agent_id": "answered to no other agent, for a day at most",
    "StoredResult.agent_id": "told to its key alone, for a day",
    "UsageDay.agent": "counts for budgets alone, which are counted",
}


def test_every_column_that_names_an_agent_is_thought_of() -> None:
    columns = {
        f"{model.__name__}.{field.name}"
        for model in apps.get_app_config("coordinator").get_models()
        for field in model._meta.local_fields
        if isinstance(field, models.TextField | models.ForeignKey) and NAMES_AN_AGENT.search(field.name)
    }
    assert columns == COUNTED | NOT_COUNTED.keys()


def create(agent_id: str = ID) -> Agent:
    return agents.create_agent(agent_id, name="Deploy", default_engine_id="mind.x", actor=ANN)


def delete() -> None:
    agents.delete_agent_with_data(ID, actor=ANN)


def leave_a_rule() -> None:
    rule = DecisionRule(1, "Bash", "allow", "kubectl delete .*", (ID,))
    tool_rules.replace_tool_rules(
        [rule],
        seen_version=policy.digest_tool_rules(policy.load_saved_tool_rules()),
        actor=ANN,
        now=timezone.now(),
    )


def leave_an_approval() -> None:
    subject = PermissionSubject("claude-code", "ToolCall", None, "Bash", {"command": "terraform apply"})
    row = approvals.request_permission(
        NewPermissionRequest(subject, "please", agent_id=ID), actor=key_actor_by_name("old")
    ).request
    lasting = {"validity": Validity.UNTIL_REVOKED, "scope": Scope.EVERYWHERE}
    approver = User.objects.filter(username="admin").first() or new_person("admin")
    approvals.decide_request(row.request_id, person=approver, verdict="approved", **lasting)


def leave_a_session() -> None:
    Session.objects.create(session_id="ses_1", status="finished", created_at=timezone.now(), agent_name=ID)


def leave_a_budget() -> None:
    budgets.create_budget(
        "agent", ID, "day", "calls", amount=1, at_limit="hold", actor=ANN, now=timezone.now()
    )


LEFT: dict[str, tuple[Any, type[models.Model]]] = {
    "rules": (leave_a_rule, ToolRule),
    "approvals": (leave_an_approval, PermissionRequest),
    "sessions": (leave_a_session, Session),
    "budgets": (leave_a_budget, Budget),
}


@pytest.mark.parametrize("what", LEFT)
def test_an_id_is_refused_with_what_names_it_until_that_is_cleared(what: str) -> None:
    add_agents(ID)
    leave, model = LEFT[what]
    leave()
    delete()
    with pytest.raises(Conflict, match=what):
        create()
    assert not Agent.objects.filter(pk=ID).exists()
    model._default_manager.all().delete()
    create()
    assert not DeletedAgent.objects.exists()
    leave()  # of the new agent's own, nothing is in its way
    keys.issue_api_key(name="new", scopes=["agent"], actor=ANN, now=timezone.now(), agent_id=ID)


def test_an_id_that_nobody_had_may_be_named_before_there_is_an_agent() -> None:
    leave_a_session()
    assert create().pk == ID


def test_an_agent_that_another_program_made_gets_no_key_and_no_code() -> None:
    add_agents(ID)
    leave_a_session()
    delete()
    Agent.objects.create(id=ID, name="Deploy", default_engine_id="mind.x")
    now, admin = timezone.now(), new_person("admin")
    with pytest.raises(Conflict, match="sessions"):
        keys.issue_api_key(name="new", scopes=["agent"], actor=ANN, now=now, agent_id=ID)
    with pytest.raises(Conflict, match="sessions"):
        connecting.issue_connect_code(key_name="new", user=admin, now=now, agent_id=ID)
    assert not ApiKey.objects.exists()


def test_no_blueprint_gets_the_id_of_a_deleted_agent() -> None:
    add_agents("deploy")
    Session.objects.create(
        session_id="ses_1", status="finished", created_at=timezone.now(), agent_name="deploy"
    )
    agents.delete_agent_with_data("deploy", actor=ANN)
    with pytest.raises(Conflict, match="sessions"):
        blueprints.add_blueprint("deploy", {}, actor=ANN, now=timezone.now())


def test_its_session_keys_and_codes_go_with_an_agent() -> None:
    add_agents(ID)
    now = timezone.now()
    connecting.issue_connect_code(key_name="box", user=new_person("admin"), now=now, agent_id=ID)
    SessionKey.objects.create(
        key_hash="x", session_id="ses_1", agent_id=ID, runner_id="r", created_at=now, expires_at=now
    )
    delete()
    assert (ConnectCode.objects.count(), SessionKey.objects.count()) == (0, 0)


def test_the_form_says_why_and_keeps_what_was_typed() -> None:
    add_agents(ID)
    leave_a_session()
    delete()
    form = {"name": "Deploy", "id": ID, "default_engine_id": "mind.x"}
    refused = signed_in("admin").post("/ui/agents/new/", form)
    text = refused.content.decode()
    assert refused.status_code in {409, 422}
    assert "was deleted on" in text
    assert 'value="Deploy"' in text


def test_agents_that_were_deleted_before_this_was_noted_are_taken_from_the_audit_log() -> None:
    add_agents(ID, "agent.again")
    delete()
    agents.delete_agent_with_data("agent.again", actor=ANN)
    add_agents("agent.again")
    DeletedAgent.objects.all().delete()
    importlib.import_module("coordinator.migrations.0079_deleted_agents").take_over(apps, None)
    assert list(DeletedAgent.objects.values_list("pk", flat=True)) == [ID]
    assert AuditLog.objects.filter(event_type="AGENT_DELETED").count() == 2
    assert deleted_agents.is_agent_deleted(ID)
