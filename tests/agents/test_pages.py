"""The agents' pages: what they show, who may what, and that nothing is overwritten or inherited by accident."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.agents import agents
from coordinator.actions.people import keys
from coordinator.actions.policy import agent_power
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor, system_actor
from coordinator.lib.identifiers import slugify_name_as_agent_id
from coordinator.models import (
    Agent,
    AgentPlugin,
    ApiKey,
    AuditLog,
    ChatMessage,
    Grant,
    McpServer,
    PluginSetting,
    Session,
)
from tests.chat.rows import add_agent, say
from tests.people import signed_in

pytestmark = pytest.mark.django_db
BY = Actor("user", "anna")
ROBOT = "/ui/agents/of/agent.robot/"


def body(response: Any) -> str:
    return str(response.content.decode())


def new_agent(client: Any, **typed: str) -> Any:
    return client.post("/ui/agents/new/", {"name": "Night watch", "default_engine_id": "mind.x", **typed})


@pytest.mark.parametrize(
    ("name", "agent_id"),
    [
        ("Night watch", "agent.night_watch"),
        ("  Gr\u00fcner & Co. ", "agent.gruner_co"),
        ("a/b?c#d", "agent.a_b_c_d"),
        ("x" * 100, "agent." + "x" * 60),
    ],
)
def test_an_id_follows_from_the_name_and_is_safe_in_addresses(name, agent_id):
    assert slugify_name_as_agent_id(name) == agent_id


def test_names_without_plain_letters_get_ids_of_their_own():
    ids = {slugify_name_as_agent_id(name) for name in ("夜警", "昼警", "!!!")}
    assert len(ids) == 3
    assert all(one.isascii() for one in ids)


def test_an_agent_is_made_with_what_was_typed():
    answer = new_agent(
        signed_in("admin"),
        required_capabilities="Reasoning, Memory, Reasoning",
        metadata='{"team": "ops"}',
        password="hunter2",
    )
    agent = Agent.objects.get(pk="agent.night_watch")
    assert answer["Location"] == "/ui/agents/of/agent.night_watch/"
    assert (agent.required_capabilities, agent.metadata) == (["Reasoning", "Memory"], {"team": "ops"})
    assert agent.power_password_hash is not None
    assert agent_power.hasher.verify(agent.power_password_hash, "hunter2")


def test_an_empty_password_guards_nothing():
    new_agent(signed_in("admin"), password="")
    assert Agent.objects.get(pk="agent.night_watch").power_password_hash is None


def test_two_names_that_meet_in_one_id_are_told_apart():
    client = signed_in("admin")
    new_agent(client)
    answer = new_agent(client, name="Night-Watch!")
    assert answer.status_code == 422
    assert "belongs to" in body(answer)
    assert new_agent(client, name="Night-Watch!", agent_id="agent.watch_2").status_code == 302


@pytest.mark.parametrize(
    "typed", [{"metadata": "{"}, {"metadata": "[1]"}, {"name": " "}, {"default_engine_id": ""}]
)
def test_what_cannot_be_an_agent_is_refused(typed):
    assert new_agent(signed_in("admin"), **typed).status_code == 422
    assert not Agent.objects.filter(pk="agent.night_watch").exists()


def test_only_admins_make_change_and_delete_agents():
    add_agent()
    client = signed_in("approver")
    assert new_agent(client).status_code == 403
    for verb in ("edit", "delete", "password", "assign", "withdraw"):
        assert client.post(f"/ui/agents/{verb}/agent.robot/").status_code == 403


def test_an_edit_changes_what_was_touched_and_no_more():
    add_agent()
    Agent.objects.update(metadata="no object", description=None)
    client = signed_in("admin")
    page = client.get("/ui/agents/edit/agent.robot/")
    form = dict(page.context["form"].initial)
    client.post("/ui/agents/edit/agent.robot/", form | {"description": "watches", "metadata": ""})
    agent = Agent.objects.get(pk="agent.robot")
    assert (agent.description, agent.name) == ("watches", "robot")


def test_an_edit_of_a_version_that_is_gone_is_refused():
    agent = add_agent()
    client = signed_in("admin")
    form = dict(client.get("/ui/agents/edit/agent.robot/").context["form"].initial)
    agents.update_agent(agent.pk, {"name": "Other"}, actor=BY)
    answer = client.post("/ui/agents/edit/agent.robot/", form | {"description": "mine"})
    assert answer.status_code == 422
    assert "changed by somebody else" in body(answer)
    assert Agent.objects.get(pk=agent.pk).description is None


def full_agent() -> Agent:
    agent, now = add_agent(last_seen=timezone.now()), timezone.now()
    AgentPlugin.objects.create(agent=agent, plugin_id="mind.x")
    McpServer.objects.create(name="files", command="x", created_at=now)
    Grant.objects.create(
        entry_type="server_grant", agent_id=agent.pk, server_id="files", permission="allow", granted_at=now
    )
    Session.objects.create(session_id="ses_1", status="finished", created_at=now, agent_name="robot")
    keys.issue_api_key(
        name="robots", scopes=["agent"], agent_id=agent.pk, actor=system_actor("tests"), now=now
    )
    say("hello", now=now)
    return agent


def test_an_agents_page_shows_all_that_is_its_own():
    full_agent()
    page = body(signed_in("viewer").get(ROBOT))
    for word in ("Online", "mind.x", "files", "ses_1", "robots"):
        assert word in page


def test_deleting_tells_what_goes_and_takes_it_in_one_step():
    full_agent()
    client = signed_in("admin")
    asked = body(client.get("/ui/agents/delete/agent.robot/"))
    assert "Chat messages" in asked
    assert client.post("/ui/agents/delete/agent.robot/", {"typed": "robot"}).status_code == 422
    client.post("/ui/agents/delete/agent.robot/", {"typed": "agent.robot", "reason": "old"})
    now = timezone.now() + timedelta(seconds=1)
    assert not Agent.objects.filter(pk="agent.robot").exists()
    assert not ChatMessage.objects.exists()
    assert not AgentPlugin.objects.filter(agent="agent.robot").exists()
    assert not Grant.objects.not_ended(now).filter(agent_id="agent.robot").exists()
    assert ApiKey.objects.get(name="robots").revoked_at is not None
    row = AuditLog.objects.get(event_type="AGENT_DELETED")
    assert (row.reason, row.metadata["taken_along"]["chat messages"]) == ("old", 1)


def test_the_default_agent_is_not_deleted():
    client = signed_in("admin")
    answer = client.post(f"/ui/agents/delete/{agents.DEFAULT_AGENT}/", {"typed": agents.DEFAULT_AGENT})
    assert answer.status_code == 422
    with pytest.raises(Conflict):
        agents.delete_agent_with_data(agents.DEFAULT_AGENT, actor=BY)


def test_the_switch_asks_for_its_password():
    add_agent()
    agent_power.set_power_switch_password("agent.robot", "hunter2", actor=BY, now=timezone.now())
    client = signed_in("approver")
    answer = client.post("/ui/agents/power/agent.robot/", {"on": "no"}, follow=True)
    assert "Password required" in body(answer)
    answer = client.post("/ui/agents/power/agent.robot/", {"on": "no", "password": "x"}, follow=True)
    assert "Wrong password" in body(answer)
    client.post("/ui/agents/power/agent.robot/", {"on": "no", "password": "hunter2"})
    assert not Agent.objects.get(pk="agent.robot").enabled
    assert "hunter2" not in body(client.get(ROBOT))


def test_viewers_switch_nothing():
    add_agent()
    assert signed_in("viewer").post("/ui/agents/power/agent.robot/", {"on": "no"}).status_code == 403


def test_the_guard_of_a_switch_is_set_and_removed_by_admins():
    add_agent()
    client = signed_in("admin")
    client.post("/ui/agents/password/agent.robot/", {"password": " spaced "})
    stored = Agent.objects.get(pk="agent.robot").power_password_hash
    assert stored is not None
    assert agent_power.hasher.verify(stored, " spaced ")
    client.post("/ui/agents/password/agent.robot/", {"remove": "yes"})
    assert Agent.objects.get(pk="agent.robot").power_password_hash is None


def test_plugins_are_given_and_taken():
    add_agent()
    PluginSetting.objects.update_or_create(plugin_id="mind.x")
    client = signed_in("admin")
    client.post("/ui/agents/assign/agent.robot/", {"plugin": "mind.x"})
    assert AgentPlugin.objects.filter(agent="agent.robot", plugin_id="mind.x").exists()
    again = client.post("/ui/agents/assign/agent.robot/", {"plugin": "mind.x"}, follow=True)
    assert "already" in body(again)
    client.post("/ui/agents/withdraw/agent.robot/", {"plugin": "mind.x"})
    assert not AgentPlugin.objects.filter(agent="agent.robot").exists()


def test_the_list_is_searched_and_narrowed():
    add_agent("agent.here", last_seen=timezone.now())
    add_agent("agent.gone", enabled=False)
    client = signed_in("viewer")
    online = body(client.get("/ui/agents/", {"status": "online"}))
    assert ("agent.here" in online, "agent.gone" in online) == (True, False)
    found = body(client.get("/ui/agents/", {"q": "gone"}))
    assert ("agent.here" in found, "agent.gone" in found) == (False, True)


def test_an_agent_that_has_not_reported_for_a_while_is_away_and_no_warning():
    add_agent("agent.away", last_seen=timezone.now() - timedelta(hours=3))
    page = " ".join(body(signed_in("viewer").get("/ui/agents/")).split())
    assert 'Away <span class="count">1</span>' in page
    assert "Degraded" not in page


def test_many_agents_cost_no_more_queries(django_assert_max_num_queries):
    for number in range(40):
        add_agent(f"agent.a{number}")
    client = signed_in("viewer")
    with django_assert_max_num_queries(16):
        client.get("/ui/agents/")


@pytest.mark.parametrize("odd", ["not json", "[1]", "3", '"x"', "{}"])
def test_odd_rows_of_other_programs_are_shown(odd):
    from django.db import connection

    add_agent("odd/agent #1")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents SET metadata = %s, required_capabilities = %s, default_engine_id = ''", [odd, odd]
        )
    client = signed_in("admin")
    assert client.get("/ui/agents/").status_code == 200
    assert client.get("/ui/agents/of/odd/agent%20%231/").status_code == 200
    assert client.get("/ui/agents/edit/odd/agent%20%231/").status_code == 200
