"""What machines may ask about access over HTTP, and that none of them can give any."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.api.access import resolve_agent_for_access_check
from coordinator.errors import Forbidden
from coordinator.identity.actors import Actor
from coordinator.models import ApiKey, AuditLog, DecidingRule, Grant
from tests.access.cases import add_agents, add_server, grant
from tests.people import signed_in
from tests.unbound import accept_unbound_keys

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture(autouse=True)
def _world() -> None:
    add_agents("agent.a", "agent.b")
    add_server("s", tools=["t", "u"])
    grant("agent.a", "s", "t", expires_at=NOW + timedelta(hours=1), justification="For the release.")


def client(*scopes: str, agent_id: str | None = None) -> Client:
    accept_unbound_keys()
    _, raw = keys.issue_api_key(
        name="a key", scopes=scopes, actor=Actor("user", "alice"), now=timezone.now(), agent_id=agent_id
    )
    return Client(headers={"Authorization": f"Bearer {raw}"})


def test_a_key_of_an_agent_asks_for_that_agent_alone() -> None:
    own = client("agent", agent_id="agent.a")
    caller = keys.authenticate_api_key(own.defaults["HTTP_AUTHORIZATION"].removeprefix("Bearer "), NOW)
    assert (
        resolve_agent_for_access_check(caller, None)
        == resolve_agent_for_access_check(caller, "agent.a")
        == "agent.a"
    )
    with pytest.raises(Forbidden):
        resolve_agent_for_access_check(caller, "agent.b")
    assert own.get("/api/access/agents/agent.b").status_code == 403
    assert own.get("/api/mcp/access/by-agent/agent.b").status_code == 403


def test_a_key_of_several_agents_asks_for_those_alone() -> None:
    own = client("agent", agent_id="agent.a")
    ApiKey.objects.update(agent_id=None, agent_ids=["agent.a", "agent.c"])
    assert own.get("/api/mcp/access/by-agent/agent.a").status_code == 200
    assert own.get("/api/mcp/access/by-agent/agent.b").status_code == 403
    assert own.get("/api/access/agents/agent.b").status_code == 403


def test_everything_an_agent_may_call() -> None:
    add_server("open", "opt-out")
    told = client("read").get("/api/access/agents/agent.a").json()
    assert [server["server_id"] for server in told["servers"]] == ["open", "s"]
    assert [tool["tool_name"] for tool in told["servers"][1]["tools"]] == ["t"]
    assert told["servers"][0]["any_tool"]["verdict"] == "allow"


def test_everything_an_agent_may_call_at_another_time() -> None:
    later = (NOW + timedelta(hours=2)).isoformat()
    told = client("read").get("/api/access/agents/agent.a", {"at": later}).json()
    assert told["servers"] == []


def test_the_recorded_forms_are_read() -> None:
    caller = client("read")
    servers = caller.get("/api/mcp/servers").json()
    assert (servers["count"], servers["servers"][0]["id"], servers["servers"][0]["tools"]) == (
        1,
        "s",
        ["t", "u"],
    )
    of_server = caller.get("/api/mcp/servers/s/access").json()
    assert (of_server["server_id"], of_server["default_policy"], of_server["tools"]) == (
        "s",
        "opt-in",
        ["t", "u"],
    )
    (entry,) = caller.get("/api/mcp/access/by-agent/agent.a").json()["entries"]
    assert entry == of_server["entries"][0]
    assert (entry["entry_type"], entry["tool_name"], entry["permission"]) == ("tool_grant", "t", "allow")


def test_an_unknown_server_is_not_found() -> None:
    assert client("read").get("/api/mcp/servers/nowhere/access").status_code == 404


@pytest.mark.parametrize("scope", ["agent", "runner", "operator", "read"])
def test_no_key_gives_grants(scope: str) -> None:
    caller = client(scope)
    for path, body in DOORS:
        assert caller.put(path, body, content_type="application/json").status_code == 401
    assert Grant.objects.get().permission == "allow"


DOORS = (
    ("/api/mcp/servers/s/access", {"entries": []}),
    ("/api/mcp/access/by-agent/agent.a", {"granted_server_ids": ["s"]}),
)


def test_a_cookie_alone_gives_no_grants() -> None:
    thief = signed_in("admin")
    del thief.defaults["HTTP_X_SIGNALBOX_PROOF"]
    for path, body in DOORS:
        assert thief.put(path, body, content_type="application/json").status_code == 403
    assert Grant.objects.not_ended(timezone.now()).get().entry_type == "tool_grant"
    assert AuditLog.objects.filter(event_type="SIGN_IN_UNPROVEN").count() == 2


def test_once_who_decides_has_rows_only_administrators_replace_grants() -> None:
    approver, admin = signed_in("approver"), signed_in("admin")
    DecidingRule.objects.create(position=1, changed_by="admin", changed_at=NOW)
    for path, body in DOORS:
        refused = approver.put(path, body, content_type="application/json")
        assert (refused.status_code, "Only administrators may" in refused.json()["detail"]) == (403, True)
        assert admin.put(path, body, content_type="application/json").status_code == 200


def test_an_approver_replaces_a_servers_grants() -> None:
    entry = {"entry_type": "server_grant", "agent_id": "agent.b", "server_id": "s", "permission": "allow"}
    answer = signed_in("approver").put(
        "/api/mcp/servers/s/access", {"entries": [entry]}, content_type="application/json"
    )
    assert (answer.status_code, answer.json()["changed"]) == (200, 2)
    standing = Grant.objects.not_ended(timezone.now())
    assert [(row.agent_id, row.granted_by) for row in standing] == [("agent.b", "user:approver")]


@pytest.mark.parametrize(
    "change", [{"server_id": "x"}, {"entry_type": "capability"}, {"entry_type": "bogus"}]
)
def test_bad_entries_are_a_bad_request(change: dict[str, str]) -> None:
    entry = {"entry_type": "server_grant", "agent_id": "agent.b", "server_id": "s", "permission": "allow"}
    answer = signed_in("approver").put(
        "/api/mcp/servers/s/access", {"entries": [entry | change]}, content_type="application/json"
    )
    assert (answer.status_code, Grant.objects.count()) == (400, 1)


def test_a_viewer_replaces_nothing_and_a_foreign_page_neither() -> None:
    body = {"granted_server_ids": ["s"]}
    path = "/api/mcp/access/by-agent/agent.b"
    assert signed_in("viewer").put(path, body, content_type="application/json").status_code == 403
    strict = signed_in("approver", enforce_csrf_checks=True)
    assert strict.put(path, body, content_type="application/json").status_code == 403
    assert Grant.objects.count() == 1


def test_what_an_agent_may_call_names_servers_that_only_its_grants_name() -> None:
    grant("agent.a", "srv.none", "t9")
    found = client("read").get("/api/access/agents/agent.a").json()["servers"]
    (told,) = [one for one in found if one["server_id"] == "srv.none"]
    assert told["default_policy"] is None
    assert told["any_tool"]["source"] == "unknown_server"
    assert [(one["tool_name"], one["verdict"], one["unknown_server"]) for one in told["tools"]] == [
        ("t9", "allow", True)
    ]
