"""Saving through the admin's pages: each writes its audit row, and what was not touched stays as it is."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from coordinator.identity.roles import highest_role_of_user
from coordinator.models import Agent, AgentPlugin, AuditLog, ChatMessage, Grant, McpServer, PluginSetting
from tests.admin.pages import errors, open_page, save, url
from tests.admin.rows import BROKEN_JSON, ODD_ID, insert, odd_row
from tests.people import PASSWORD, person, signed_in

pytestmark = pytest.mark.django_db

NEW_AGENT = {"id": ODD_ID, "name": "Añn", "default_engine_id": "mind.x", "metadata": '{"a": [1, true]}'}


@pytest.fixture
def client() -> Client:
    return signed_in("admin")


def trail() -> list[str]:
    return list(AuditLog.objects.order_by("id").values_list("event_type", flat=True))


def stored(table: str, key: str, pk: str) -> dict[str, Any]:
    """Return a row as the database holds it."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE {key} = %s", [pk])
        names = [column[0] for column in cursor.description]
        return dict(zip(names, cursor.fetchone(), strict=True))


def test_an_agent_is_made_changed_and_deleted(client: Client) -> None:
    assert save(client, Agent, **NEW_AGENT).status_code == 302
    assert Agent.objects.get(pk=ODD_ID).metadata == {"a": [1, True]}
    assert save(client, Agent, ODD_ID, name="Bob").status_code == 302
    assert Agent.objects.get(pk=ODD_ID).name == "Bob"
    assert client.post(url(Agent, "delete", ODD_ID), {"post": "yes"}).status_code == 302
    assert trail() == ["AGENT_CREATED", "AGENT_UPDATED", "AGENT_DELETED"]
    assert set(AuditLog.objects.values_list("actor_id", "target_id")) == {("user:admin", ODD_ID)}


def test_a_server_is_made_changed_and_deleted(client: Client) -> None:
    made = save(client, McpServer, name=ODD_ID, command="python", args='["-m", "x", "--token=t0p"]')
    assert made.status_code == 302
    assert McpServer.objects.get(pk=ODD_ID).args == ["-m", "x", "--token=t0p"]
    Grant.objects.create(
        entry_type="server_grant", agent_id="a", server_id=ODD_ID, granted_at="2026-01-01T00:00:00Z"
    )
    assert save(client, McpServer, ODD_ID, default_policy="opt-out").status_code == 302
    assert client.post(url(McpServer, "delete", ODD_ID), {"post": "yes"}).status_code == 302
    assert trail() == ["MCP_SERVER_CREATED", "MCP_SERVER_UPDATED", "GRANT_REVOKED", "MCP_SERVER_DELETED"]
    assert not Grant.objects.filter(server_id=ODD_ID).exists()
    assert "t0p" not in str(list(AuditLog.objects.values_list("metadata", flat=True)))


def test_a_plugin_is_made_switched_and_deleted(client: Client) -> None:
    assert save(client, PluginSetting, plugin_id=ODD_ID, allowed_permissions=["FileRead"]).status_code == 302
    assert save(client, PluginSetting, ODD_ID, is_active=None, reason="noisy").status_code == 302
    assert PluginSetting.objects.get(pk=ODD_ID).is_active is False
    assert client.post(url(PluginSetting, "delete", ODD_ID), {"post": "yes"}).status_code == 302
    assert trail() == ["PLUGIN_REGISTERED", "PLUGIN_DISABLED", "PLUGIN_DELETED"]
    assert AuditLog.objects.get(event_type="PLUGIN_DISABLED").reason == "noisy"


def test_a_person_is_made_given_a_role_and_deleted(client: Client) -> None:
    save(client, User, username="grace", password1=PASSWORD, password2=PASSWORD, role="viewer")
    grace = User.objects.get(username="grace")
    assert save(client, User, grace.pk, role="approver", email="g@example.org").status_code == 302
    assert highest_role_of_user(User.objects.get(pk=grace.pk)) == "approver"
    assert client.post(url(User, "delete", grace.pk), {"post": "yes"}).status_code == 302
    assert trail() == ["USER_CREATED", "USER_UPDATED", "USER_DELETED"]


def test_a_person_gets_a_new_password(client: Client) -> None:
    grace = person("viewer", "grace")
    place = url(User, "password_change", grace.pk)
    assert client.get(place).status_code == 200
    sent = {"password1": "new-horse-8-battery", "password2": "new-horse-8-battery", "usable_password": "true"}
    assert client.post(place, sent).status_code == 302
    assert User.objects.get(pk=grace.pk).check_password("new-horse-8-battery")
    assert trail() == ["PASSWORD_CHANGED"]
    weak = client.post(place, {"password1": "123", "password2": "123", "usable_password": "true"})
    assert weak.status_code == 200
    assert trail() == ["PASSWORD_CHANGED"]


def test_a_message_is_deleted_but_never_edited(client: Client) -> None:
    pk = odd_row(ChatMessage)
    assert client.post(url(ChatMessage, "change", pk), {}).status_code == 403
    assert client.post(url(ChatMessage, "delete", pk), {"post": "yes"}).status_code == 302
    assert not ChatMessage.objects.filter(pk=pk).exists()
    assert trail() == ["CHAT_MESSAGE_DELETED"]


@pytest.mark.parametrize("model", [Agent, McpServer, PluginSetting], ids=lambda model: model.__name__)
def test_an_odd_row_saved_untouched_stays_as_it_is(client: Client, model: Any) -> None:
    pk = odd_row(model)
    before = stored(model._meta.db_table, model._meta.pk.column, pk)
    assert save(client, model, pk).status_code == 302
    assert stored(model._meta.db_table, model._meta.pk.column, pk) == before
    assert trail() == []


def test_texts_and_json_keep_what_nobody_touched(client: Client) -> None:
    raw = {
        "id": "agent.raw",
        "name": " two\r\nlines\n ",
        "description": "",
        "default_engine_id": "e",
        "metadata": '{"b" : 1.0,  "a": 1e2, "a": "\\u00e9"}',
        "required_capabilities": BROKEN_JSON,
    }
    insert(Agent, raw)
    assert save(client, Agent, "agent.raw", description="new").status_code == 302
    now = stored("agents", "id", "agent.raw")
    assert {name: now[name] for name in raw} == {**raw, "description": "new"}


def test_broken_json_is_refused_with_everything_still_there(client: Client) -> None:
    answer = save(client, Agent, **{**NEW_AGENT, "metadata": '{"a": ', "description": "typed with care"})
    assert "not JSON" in errors(answer)
    page = answer.content.decode()
    assert "typed with care" in page
    assert "{&quot;a&quot;: </textarea>" in page
    assert not Agent.objects.filter(pk=ODD_ID).exists()


@pytest.mark.parametrize("json", ["NaN", "[Infinity]", '{"a": -Infinity}', "[" * 100_000, "9" * 10_000])
def test_what_python_takes_for_json_but_is_not(client: Client, json: str) -> None:
    assert "not JSON" in errors(save(client, Agent, **{**NEW_AGENT, "metadata": json}))


def test_what_an_action_refuses_is_said_on_the_form(client: Client) -> None:
    answer = save(client, McpServer, name="s", command="python", args='{"no": "list"}')
    assert "JSON list of strings" in errors(answer)
    assert "&quot;no&quot;: &quot;list&quot;" in answer.content.decode()


def test_an_id_in_use_is_an_error_on_the_form(client: Client) -> None:
    save(client, Agent, **NEW_AGENT)
    assert "already" in errors(save(client, Agent, **{**NEW_AGENT, "description": "kept"}))


@pytest.mark.parametrize(
    ("model", "first", "second"),
    [
        (Agent, {"name": "theirs"}, {"description": "mine"}),
        (McpServer, {"description": "theirs"}, {"command": "mine"}),
        (PluginSetting, {"is_active": None}, {"allowed_permissions": ["FileRead"]}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_second_of_two_editors_is_told(client: Client, model: Any, first: Any, second: Any) -> None:
    insert(model, ROWS[model])
    pk = ROWS[model][model._meta.pk.column]
    opened = open_page(client, model, pk)
    assert save(client, model, pk, **first).status_code == 302
    before = stored(model._meta.db_table, model._meta.pk.column, pk)
    answer = save(client, model, pk, opened, **second)
    assert "somebody else" in errors(answer)
    assert stored(model._meta.db_table, model._meta.pk.column, pk) == before
    assert len(trail()) == 1


ROWS: dict[Any, dict[str, Any]] = {
    Agent: {"id": "agent.a", "name": "A", "default_engine_id": "e"},
    McpServer: {"name": "s", "command": "python", "created_at": 1771848000},
    PluginSetting: {"plugin_id": "tool.x"},
}


def test_several_agents_are_deleted_through_the_action(client: Client) -> None:
    for name in ("a", "b"):
        insert(Agent, {**ROWS[Agent], "id": name})
    sent = {"action": "delete_selected", "_selected_action": ["a", "b"]}
    told = client.post(url(Agent, "changelist"), sent).content.decode()
    assert "Chat messages: 0" in told
    client.post(url(Agent, "changelist"), {**sent, "post": "yes"})
    assert trail() == ["AGENT_DELETED", "AGENT_DELETED"]


def test_of_several_none_is_deleted_where_one_is_protected(client: Client) -> None:
    insert(Agent, {**ROWS[Agent], "id": "a"})
    sent = {"action": "delete_selected", "_selected_action": ["a", "agent.cloto_default"], "post": "yes"}
    answer = client.post(url(Agent, "changelist"), sent, follow=True)
    assert "default agent" in answer.content.decode()
    assert Agent.objects.filter(pk__in=["a", "agent.cloto_default"]).count() == 2
    assert trail() == []


def test_the_default_agent_is_protected_and_its_page_says_so(client: Client) -> None:
    answer = client.post(url(Agent, "delete", "agent.cloto_default"), {"post": "yes"}, follow=True)
    assert "default agent" in answer.content.decode()
    assert Agent.objects.filter(pk="agent.cloto_default").exists()


def test_a_guarded_switch_is_not_offered(client: Client) -> None:
    insert(Agent, {**ROWS[Agent], "power_password_hash": "$argon2id$x"})
    opened = open_page(client, Agent, "agent.a")
    assert "enabled" not in opened.context["adminform"].form.fields
    save(client, Agent, "agent.a", opened, enabled=None)
    assert Agent.objects.get(pk="agent.a").enabled


def test_an_agents_plugins_are_added_moved_and_taken_away(client: Client) -> None:
    insert(Agent, ROWS[Agent])
    assert save(client, Agent, "agent.a", plugins__0__key=ODD_ID, plugins__0__pos_x="3").status_code == 302
    assert AgentPlugin.objects.get(pk=("agent.a", ODD_ID)).pos_x == 3
    assert save(client, Agent, "agent.a", plugins__0__pos_y="-7").status_code == 302
    assert AgentPlugin.objects.get(pk=("agent.a", ODD_ID)).pos_y == -7
    assert save(client, Agent, "agent.a", plugins__0__DELETE="on").status_code == 302
    assert not AgentPlugin.objects.filter(agent="agent.a").exists()
    assert trail() == ["AGENT_PLUGIN_ASSIGNED", "AGENT_PLUGIN_MOVED", "AGENT_PLUGIN_WITHDRAWN"]
