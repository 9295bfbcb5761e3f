"""Keys of scope `agent` speak for the agents that they are bound to; unbound ones are refused or bound."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.test import Client

from coordinator.actions.agents import agents
from coordinator.actions.people import connecting, key_binding, keys
from coordinator.actions.sessions import writers
from coordinator.api.access import resolve_agent_for_access_check
from coordinator.errors import Conflict, Forbidden, Unauthorized, UnprocessableRequest
from coordinator.identity import ownership
from coordinator.identity.actors import key_actor_by_name as key_actor
from coordinator.identity.actors import system_actor
from coordinator.identity.keys import accepts_keys_without_agent
from coordinator.models import (
    Agent,
    ApiKey,
    AuditLog,
    GatewaySession,
    InstallationSetting,
    PermissionContext,
    Session,
)
from tests.people import person, signed_in
from tests.unbound import accept_unbound_keys

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC).replace(microsecond=0)
BY = system_actor("tests")
URL = "/ui/keys/"


def unbound_key(name: str = "old", *scopes: str) -> tuple[ApiKey, str]:
    accept_unbound_keys()
    return keys.issue_api_key(name=name, scopes=scopes or ["agent"], actor=BY, now=NOW)


def with_key(raw: str) -> Client:
    return Client(headers={"Authorization": f"Bearer {raw}"})


def made_session(session_id: str, agent_name: str, by: str) -> None:
    Session.objects.create(session_id=session_id, status="running", created_at=NOW, agent_name=agent_name)
    writers.record_session_creator_key(session_id, key_actor(by))


def spoke(row: ApiKey) -> None:
    """Let a key have spoken for agents in each way that leaves a trace."""
    made_session("ses_a", "claude-code", row.name)
    made_session("ses_other", "agent.other", "somebody else")
    GatewaySession.objects.create(
        session_id="gws-1",
        door="",
        key_id=row.pk,
        agent_id="agent.b",
        protocol_version="2025-11-25",
        created_at=NOW,
        used_at=NOW,
    )


# --- new installations ------------------------------------------------------------------------------------


def test_a_new_installation_makes_no_unbound_key_of_scope_agent() -> None:
    assert not accepts_keys_without_agent()
    for scopes in (["agent"], ["agent", "operator"]):
        with pytest.raises(UnprocessableRequest, match="bound to an agent"):
            keys.issue_api_key(name="k", scopes=scopes, actor=BY, now=NOW)
    assert not ApiKey.objects.exists()
    keys.issue_api_key(name="k", scopes=["runner", "operator", "read"], actor=BY, now=NOW)


def test_an_unbound_key_that_is_there_all_the_same_is_refused() -> None:
    row, raw = unbound_key()
    assert keys.authenticate_api_key(raw, NOW).agent_id is None
    InstallationSetting.objects.all().delete()
    with pytest.raises(Unauthorized, match="bound to no agent"):
        keys.authenticate_api_key(raw, NOW)
    assert with_key(raw).get("/sessions").status_code == 401
    refusals = AuditLog.objects.filter(event_type="API_KEY_REFUSED")
    assert {refusal.target_id for refusal in refusals} == {row.name}


def test_a_connect_code_makes_the_agent_that_its_key_is_bound_to() -> None:
    ann = person("admin", "ann")
    code = connecting.issue_connect_code(key_name="ann laptop", user=ann, now=NOW)[1]
    assert Agent.objects.get(pk="agent.ann_laptop").name == "ann laptop"
    row, raw = connecting.redeem_code_and_issue_key(code, source="192.0.2.1", host="laptop", now=NOW)
    assert row.agent_id == "agent.ann_laptop"
    assert keys.authenticate_api_key(raw, NOW).agent_id == "agent.ann_laptop"
    with pytest.raises(Conflict, match=r"There is an agent .* already"):
        connecting.issue_connect_code(key_name="Ann Laptop", user=ann, now=NOW)


def test_a_code_whose_agent_was_deleted_brings_no_key() -> None:
    code = connecting.issue_connect_code(key_name="laptop", user=person("admin", "ann"), now=NOW)[1]
    agents.delete_agent_with_data("agent.laptop", actor=BY, now=NOW)
    with pytest.raises(Forbidden):
        connecting.redeem_code_and_issue_key(code, source="192.0.2.1", host="laptop", now=NOW)
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize(
    ("path", "form"),
    [
        (URL, {"name": "laptop", "scopes": ["agent"]}),
        ("/ui/connections/key/", {"name": "laptop", "program": "claude-code"}),
    ],
)
def test_pages_make_a_new_agent_for_a_key_without_one(path: str, form: dict[str, object]) -> None:
    admin = signed_in("admin")
    assert admin.post(path, form).status_code == 200
    assert ApiKey.objects.get().agent_id == "agent.laptop"
    assert Agent.objects.filter(pk="agent.laptop").exists()
    again = admin.post(path, form | {"name": "Laptop"})
    assert again.status_code == 422
    assert "There is an agent agent.laptop already" in again.content.decode()
    assert ApiKey.objects.count() == 1


def test_the_command_makes_bound_keys_and_binds_others(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("apikey", "create", "laptop", "--scope", "agent")
    assert "It speaks for agent.laptop." in capsys.readouterr().err
    call_command("apikey", "bind", "laptop", "--agent", "agent.b", "--agent", "agent.a")
    call_command("apikey", "list")
    assert "agent  agent.a,agent.b  used" in capsys.readouterr().out
    row = ApiKey.objects.get()
    assert (row.agent_id, row.agent_ids) == (None, ["agent.a", "agent.b"])
    assert AuditLog.objects.get(event_type="API_KEY_BOUND").metadata == {
        "before": ["agent.laptop"],
        "after": ["agent.a", "agent.b"],
    }


# --- databases that were in use ---------------------------------------------------------------------------


def migrate() -> None:
    migration = importlib.import_module("coordinator.migrations.0076_bound_keys")
    migration.accept_unbound_keys_where_there_are_keys(apps, SimpleNamespace(connection=connection))


def test_upgrading_goes_on_accepting_unbound_keys_only_where_there_are_keys() -> None:
    migrate()
    assert not accepts_keys_without_agent()
    ApiKey.objects.create(name="k", prefix="p", key_hash="h", scopes=["agent"], created_at=NOW)
    migrate()
    assert accepts_keys_without_agent()


def test_a_button_binds_each_key_to_the_agents_it_has_spoken_for() -> None:
    old, raw = unbound_key()
    one, _ = unbound_key("one")
    _, silent = unbound_key("silent", "agent", "operator")
    unbound_key("runner", "runner")
    spoke(old)
    made_session("ses_one", "agent.one", "one")
    admin = signed_in("admin")
    page = admin.get(URL).content.decode()
    assert "Some keys speak for any agent" in page
    assert "agent.b, claude-code" in page
    assert "will be refused" in page

    answer = admin.post(f"{URL}bind/", follow=True).content.decode()
    assert "2 of 3 keys were bound" in answer
    assert "Bind keys" not in answer
    assert not accepts_keys_without_agent()
    old.refresh_from_db()
    one.refresh_from_db()
    assert (old.agent_ids, one.agent_id) == (["agent.b", "claude-code"], "agent.one")
    assert keys.authenticate_api_key(raw, NOW).agents == {"agent.b", "claude-code"}
    with pytest.raises(Unauthorized):
        keys.authenticate_api_key(silent, NOW)
    kinds = AuditLog.objects.filter(actor_id="user:admin").values_list("event_type", flat=True)
    assert sorted(kinds) == ["API_KEY_BOUND", "API_KEY_BOUND", "UNBOUND_KEYS_REFUSED"]
    with pytest.raises(Conflict):
        key_binding.bind_keys_and_refuse_unbound(actor=BY, now=NOW)


def test_nothing_is_bound_where_its_audit_row_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    row, _ = unbound_key()
    spoke(row)

    def fail(event_type: str, **_fields: object) -> None:
        if event_type == "UNBOUND_KEYS_REFUSED":
            raise RuntimeError

    monkeypatch.setattr(key_binding.audit, "record_audit_entry", fail)
    with pytest.raises(RuntimeError):
        key_binding.bind_keys_and_refuse_unbound(actor=BY, now=NOW)
    row.refresh_from_db()
    assert (row.agent_ids, accepts_keys_without_agent()) == (None, True)


@pytest.mark.parametrize("name", ["viewer", "approver"])
def test_only_administrators_bind_keys(name: str) -> None:
    unbound_key()
    assert signed_in(name).post(f"{URL}bind/").status_code == 403
    assert accepts_keys_without_agent()


# --- keys bound to several --------------------------------------------------------------------------------


def key_of_two(*scopes: str) -> tuple[ApiKey, str]:
    _, raw = unbound_key("two", *scopes)
    row = key_binding.bind_key_to_agents("two", ["agent.a", "agent.b"], actor=BY, now=NOW)
    return row, raw


def test_a_key_of_several_reaches_their_sessions_and_no_others() -> None:
    _, raw = key_of_two()
    for name in "abc":
        made_session(f"ses_{name}", f"agent.{name}", "other")
    caller = keys.authenticate_api_key(raw, NOW)
    assert set(ownership.readable_sessions(caller).values_list("pk", flat=True)) == {"ses_a", "ses_b"}
    assert set(ownership.find_session_write_refusals(caller, ["ses_a", "ses_b", "ses_c"])) == {"ses_c"}
    assert not ownership.can_read_all_sessions(caller)


def test_a_key_of_several_says_for_which_it_asks() -> None:
    _, raw = key_of_two()

    def ask(path: str, **body: str) -> int:
        return with_key(raw).post(path, body, content_type="application/json").status_code

    question = {"plugin_id": "p", "permission_type": "NetworkAccess", "justification": "Please."}
    assert ask("/api/permission-requests", **question, agent_id="agent.a") == 201
    assert ask("/api/permission-requests", **question, agent_id="agent.c") == 403
    assert ask("/api/permission-requests", **question) == 403
    assert PermissionContext.objects.get().agent_id == "agent.a"
    caller = keys.authenticate_api_key(raw, NOW)
    assert resolve_agent_for_access_check(caller, "agent.b") == "agent.b"
    with pytest.raises(Forbidden):
        resolve_agent_for_access_check(caller, "agent.c")
    for path in ("/api/agents/agent.c/heartbeat", "/api/chat/agent.c/messages"):
        assert ask(path, text="hi") == 403, path


def test_a_key_of_several_is_shown_only_what_concerns_them() -> None:
    _, raw = key_of_two()
    caller = keys.authenticate_api_key(raw, NOW)
    assert caller.restrict_to_agent("agent.b").agent_id == "agent.b"
    assert caller.agent_name_for_report("agent.c") == "agent.a"
    with pytest.raises(Forbidden):
        caller.restrict_to_agent("agent.c")


def test_a_list_of_agents_that_cannot_be_read_binds_to_nobody() -> None:
    row, raw = key_of_two()
    ApiKey.objects.filter(pk=row.pk).update(agent_ids={"not": "a list"})
    caller = keys.authenticate_api_key(raw, NOW)
    assert caller.is_bound_to_agents
    assert not caller.can_speak_for_agent("agent.a")
    made_session("ses_a", "agent.a", "other")
    assert not ownership.readable_sessions(caller).exists()


def test_a_deleted_agent_leaves_the_keys_of_several_and_takes_its_last_key_along() -> None:
    row, _ = key_of_two()
    for name in ("agent.a", "agent.b"):
        agents.create_agent(name, name=name, default_engine_id="x", actor=BY, now=NOW)
    agents.delete_agent_with_data("agent.a", actor=BY, now=NOW)
    row.refresh_from_db()
    assert (row.agent_ids, row.revoked_at) == (["agent.b"], None)
    agents.delete_agent_with_data("agent.b", actor=BY, now=NOW)
    row.refresh_from_db()
    assert row.revoked_at is not None
