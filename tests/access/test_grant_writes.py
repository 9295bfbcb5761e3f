"""Writing grants: validated, superseding, all or none, never on a stale version, each told to the audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.agents import agents
from coordinator.actions.mcp import mcp_servers
from coordinator.actions.policy import grants
from coordinator.actions.policy.grants import StaleGrantEdit
from coordinator.errors import BadRequest, Conflict, Forbidden, NotFound, SignalboxError, UnprocessableRequest
from coordinator.identity.actors import Actor, key_actor_by_name
from coordinator.models import AuditLog, Grant, McpServer, McpTool
from coordinator.policy.grants import access
from coordinator.policy.grants import end_parsing as grant_lengths
from coordinator.policy.grants.edits import INHERIT, GrantEdit
from tests.access.cases import CASES, add_agents, add_grants, add_server, add_tool, grant

pytestmark = pytest.mark.django_db
# The audit log keeps 90 days by the database's own clock, so its tests live today.
NOW = timezone.now()
ALICE, BOB = Actor("user", "alice"), Actor("user", "bob")
LATER = NOW + timedelta(minutes=5)


@pytest.fixture(autouse=True)
def _world() -> None:
    add_agents("agent.a", "agent.b")
    add_server("s")


def version(agent: str = "agent.a", server: str = "s", tool: str | None = None) -> str:
    return grants.compute_grant_slot_version(
        grants.load_grant_slots([agent], [server]).get((agent, server, tool), [])
    )


def live(server: str = "s") -> list[tuple[str, str, str | None, str]]:
    rows = Grant.objects.filter(server_id=server).order_by("id")
    standing = [row for row in rows if grants.is_grant_current(row, NOW)]
    return [(row.entry_type, row.agent_id, row.tool_name, row.permission) for row in standing]


def test_a_grant_is_stored_with_who_gave_it_when_and_why() -> None:
    grants.apply_grant_edits(
        [GrantEdit("agent.a", "s", "t", "allow", justification=" For the release. ")], actor=ALICE, now=NOW
    )
    row = Grant.objects.get()
    assert (row.entry_type, row.tool_name, row.granted_by, row.granted_at, row.justification) == (
        "tool_grant",
        "t",
        "user:alice",
        NOW,
        "For the release.",
    )


def test_a_replaced_grant_ends_and_stays() -> None:
    grants.apply_grant_edits([GrantEdit("agent.a", "s", None, "allow")], actor=ALICE, now=NOW)
    grants.apply_grant_edits([GrantEdit("agent.a", "s", None, "deny")], actor=BOB, now=LATER)
    old, new = Grant.objects.order_by("id")
    assert (old.permission, old.expires_at) == ("allow", LATER)
    assert old.metadata["ended"]["replaced_by"] == new.pk
    assert access.resolve_tool_access("agent.a", "s", "t", LATER, at=NOW).is_allowed
    assert not access.resolve_tool_access("agent.a", "s", "t", LATER).is_allowed


def test_inherit_ends_what_stood() -> None:
    grant("agent.a", "s")
    (done,) = grants.apply_grant_edits(
        [GrantEdit("agent.a", "s", None, INHERIT, justification="Moved on.")], actor=ALICE, now=NOW
    )
    assert done.after is None
    assert live() == []
    assert Grant.objects.get().metadata["ended"]["reason"] == "Moved on."


def test_saying_the_same_again_writes_nothing() -> None:
    edit = GrantEdit("agent.a", "s", None, "allow", LATER, "Why not.")
    grants.apply_grant_edits([edit], actor=ALICE, now=NOW)
    before = AuditLog.objects.count()
    assert grants.apply_grant_edits([edit], actor=BOB, now=NOW) == []
    assert (Grant.objects.count(), AuditLog.objects.count()) == (1, before)


def test_duplicates_of_other_programs_become_one() -> None:
    grant("agent.a", "s", "t")
    grant("agent.a", "s", "t", permission="deny")
    grants.apply_grant_edits([GrantEdit("agent.a", "s", "t", "allow")], actor=ALICE, now=NOW)
    assert live() == [("tool_grant", "agent.a", "t", "allow")]


def test_each_row_of_a_change_set_has_its_audit_entry_with_before_and_after() -> None:
    grant("agent.a", "s")
    edits = [GrantEdit("agent.a", "s", None, "deny"), GrantEdit("agent.b", "s", "t", "allow")]
    grants.apply_grant_edits(edits, actor=ALICE, now=NOW)
    replaced, created = AuditLog.objects.filter(event_type__startswith="GRANT_").order_by("id")
    assert (replaced.event_type, replaced.target_id) == ("GRANT_REPLACED", "agent.a s *")
    assert replaced.metadata["before"][0]["permission"] == "allow"
    assert replaced.metadata["after"]["permission"] == "deny"
    assert (created.event_type, created.metadata["before"]) == ("GRANT_CREATED", [])


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (GrantEdit("agent.a", "s", None, "perhaps"), UnprocessableRequest),
        (GrantEdit("agent.a", "s", "", "allow"), UnprocessableRequest),
        (GrantEdit("", "s", None, "allow"), UnprocessableRequest),
        (GrantEdit("agent.a", "s", None, "allow", NOW), UnprocessableRequest),
        (GrantEdit("agent.a", "s", None, "allow", justification="x" * 2001), UnprocessableRequest),
        (GrantEdit("agent.a", "nowhere", None, "allow"), NotFound),
        (GrantEdit("agent.missing", "s", None, "allow"), NotFound),
    ],
)
def test_one_bad_edit_stops_the_whole_set(edit: GrantEdit, error: type[SignalboxError]) -> None:
    with pytest.raises(error):
        grants.apply_grant_edits([GrantEdit("agent.b", "s", None, "allow"), edit], actor=ALICE, now=NOW)
    assert not Grant.objects.exists()


def test_one_slot_may_not_be_named_twice() -> None:
    with pytest.raises(UnprocessableRequest):
        grants.apply_grant_edits(
            [GrantEdit("agent.a", "s", None, "allow"), GrantEdit("agent.a", "s", None, "deny")],
            actor=ALICE,
            now=NOW,
        )


def test_a_grant_of_an_agent_that_is_gone_can_be_taken_back() -> None:
    grant("agent.gone", "s")
    assert grants.apply_grant_edits([GrantEdit("agent.gone", "s", None, INHERIT)], actor=ALICE, now=NOW)


def test_a_stale_save_is_refused_with_both_versions() -> None:
    seen = version()
    grants.apply_grant_edits([GrantEdit("agent.a", "s", None, "deny", seen_version=seen)], actor=BOB, now=NOW)
    with pytest.raises(StaleGrantEdit) as refused:
        grants.apply_grant_edits(
            [GrantEdit("agent.a", "s", None, "allow", seen_version=seen)], actor=ALICE, now=NOW
        )
    (clash,) = refused.value.detail["clashes"]
    assert clash["yours"]["permission"] == "allow"
    assert [row["permission"] for row in clash["theirs"]] == ["deny"]
    assert live() == [("server_grant", "agent.a", None, "deny")]


def test_the_clock_alone_makes_no_version_stale() -> None:
    grant("agent.a", "s", expires_at=NOW + timedelta(seconds=1))
    seen = version()
    assert grants.apply_grant_edits(
        [GrantEdit("agent.a", "s", None, "allow", seen_version=seen)], actor=ALICE, now=LATER
    )


def test_an_api_key_gives_and_takes_nothing() -> None:
    row = grant("agent.a", "s")
    for attempt in (
        lambda: grants.apply_grant_edits(
            [GrantEdit("agent.a", "s", None, "deny")], actor=key_actor_by_name("ci"), now=NOW
        ),
        lambda: grants.revoke_grant(row.pk, actor=key_actor_by_name("ci"), now=NOW),
        lambda: grants.prolong_grant(row.pk, until=LATER, actor=key_actor_by_name("ci"), now=NOW),
        lambda: grants.set_servers_allowed_to_agent("agent.a", [], actor=key_actor_by_name("ci"), now=NOW),
    ):
        with pytest.raises(Forbidden):
            attempt()
    assert live() == [("server_grant", "agent.a", None, "allow")]


def test_revoking_ends_one_row_and_says_why() -> None:
    row = grant("agent.a", "s")
    grants.revoke_grant(row.pk, actor=ALICE, now=NOW, reason="Unused.")
    assert live() == []
    entry = AuditLog.objects.get(event_type="GRANT_REVOKED")
    assert (entry.actor_id, entry.reason) == ("user:alice", "Unused.")


def test_revoking_twice_is_a_conflict() -> None:
    row = grant("agent.a", "s")
    grants.revoke_grant(row.pk, actor=ALICE, now=NOW)
    with pytest.raises(Conflict):
        grants.revoke_grant(row.pk, actor=BOB, now=LATER)


def test_extending_replaces_the_row_and_keeps_its_reason() -> None:
    row = grant("agent.a", "s", "t", expires_at=LATER, justification="For the release.")
    grants.prolong_grant(row.pk, until=LATER + timedelta(days=1), actor=ALICE, now=NOW)
    new = Grant.objects.order_by("-id")[0]
    assert (new.expires_at, new.justification) == (LATER + timedelta(days=1), "For the release.")
    assert live() == [("tool_grant", "agent.a", "t", "allow")]


def test_an_expired_grant_can_be_given_anew() -> None:
    row = grant("agent.a", "s", expires_at=NOW - timedelta(days=1))
    grants.prolong_grant(row.pk, until=None, actor=ALICE, now=NOW)
    assert live() == [("server_grant", "agent.a", None, "allow")]


def test_an_odd_permission_cannot_be_extended() -> None:
    row = grant("agent.a", "s", permission="perhaps")
    with pytest.raises(UnprocessableRequest):
        grants.prolong_grant(row.pk, until=None, actor=ALICE, now=NOW)


def recorded(case_id: str) -> dict[str, Any]:
    return next(case for case in CASES["access_writes"] if case["id"] == case_id)


@pytest.fixture
def srv_in() -> McpServer:
    return add_server("srv.in")


def test_pa_1_replacing_a_servers_grants_keeps_capability_rows(srv_in: McpServer) -> None:
    case = recorded("pa-1")
    add_grants(case["before"])
    grant("agent.b", "srv.in")
    grants.replace_grants_of_server("srv.in", case["body"], actor=ALICE, now=NOW)
    assert [kind for kind, *_ in live("srv.in")] == case["after_types"]
    assert live("srv.in")[-1] == ("server_grant", "agent.a", None, "deny")


@pytest.mark.parametrize(
    "entry",
    [
        {"server_id": "another"},  # pa-3
        {"entry_type": "capability"},  # pa-4
        {"entry_type": "bogus"},  # pa-5
        {"entry_type": "tool_grant", "tool_name": None},
        {"entry_type": "server_grant", "tool_name": "t"},
        {"expires_at": "never"},
    ],
)
def test_pa_3_to_5_bad_entries_change_nothing(srv_in: McpServer, entry: dict[str, Any]) -> None:
    sound = {
        "entry_type": "server_grant",
        "agent_id": "agent.a",
        "server_id": "srv.in",
        "permission": "allow",
    }
    grant("agent.a", "srv.in", "t")
    with pytest.raises(BadRequest):
        grants.replace_grants_of_server("srv.in", [sound | entry], actor=ALICE, now=NOW)
    assert live("srv.in") == [("tool_grant", "agent.a", "t", "allow")]


def test_pa_6_and_7_who_gave_it_and_when_is_set_here(srv_in: McpServer) -> None:
    entry = {
        "entry_type": "server_grant",
        "agent_id": "agent.a",
        "server_id": "srv.in",
        "permission": "allow",
        "granted_by": "root",
    }
    grants.replace_grants_of_server("srv.in", [entry], actor=ALICE, now=NOW)
    row = Grant.objects.get(server_id="srv.in")
    assert (row.granted_by, row.granted_at) == ("user:alice", NOW)


def test_pa_9_and_11_an_agents_servers_are_replaced_and_missing_rows_made() -> None:
    case = recorded("pa-9")
    add_server("a")
    add_server("b")
    add_grants(case["before"])
    grants.set_servers_allowed_to_agent("agent.a", case["body"], actor=ALICE, now=NOW)
    granted = sorted(name for name in ("a", "b", *case["body"]) if live(name))
    assert granted == case["after"]
    made = McpServer.objects.filter(command="config-loaded")
    assert sorted(made.values_list("name", flat=True)) == case["after"]


def test_pa_13_denials_survive_and_the_person_is_told() -> None:
    add_server("closed")
    grant("agent.a", "closed", permission="deny")
    grants.set_servers_allowed_to_agent("agent.a", ["s"], actor=ALICE, now=NOW)
    assert live("closed") == [("server_grant", "agent.a", None, "deny")]
    with pytest.raises(Conflict, match="closed"):
        grants.set_servers_allowed_to_agent("agent.a", ["closed"], actor=ALICE, now=NOW)


def test_an_agents_servers_are_given_for_the_default_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grant_lengths, "DEFAULT", "30 days")
    grants.set_servers_allowed_to_agent("agent.a", ["s"], actor=ALICE, now=NOW)
    assert Grant.objects.get().expires_at == NOW + timedelta(days=30)


@pytest.mark.parametrize("case_id", ["sc-03", "sc-04"])
def test_what_the_schema_lets_through_is_refused_here(case_id: str) -> None:
    case = next(case for case in CASES["schema_constraints"] if case["id"] == case_id)
    _, agent, server, permission, _granted_at = case["params"]
    assert not case["should_application_accept"]
    with pytest.raises(SignalboxError):
        grants.apply_grant_edits([GrantEdit(agent, server, None, permission)], actor=ALICE, now=NOW)


def test_sc_01_a_plain_grant_is_accepted() -> None:
    assert grants.apply_grant_edits([GrantEdit("agent.a", "s", None, "allow")], actor=ALICE, now=NOW)


def test_deleting_a_server_takes_its_grants_and_tools_along_each_audited() -> None:
    grant("agent.a", "s")
    grant("agent.b", "s", "t")
    add_tool("s", "t")
    mcp_servers.delete_server_with_grants("s", actor=ALICE, now=NOW)
    assert (Grant.objects.count(), McpTool.objects.count()) == (0, 0)
    assert AuditLog.objects.filter(event_type="GRANT_REVOKED").count() == 2
    assert AuditLog.objects.filter(event_type="MCP_SERVER_DELETED").count() == 1


def test_a_new_agent_of_the_same_name_inherits_nothing() -> None:
    grant("agent.a", "s")
    agents.delete_agent_with_data("agent.a", actor=ALICE, now=NOW)
    add_agents("agent.a")
    assert not access.resolve_tool_access("agent.a", "s", "t", NOW).is_allowed
    assert AuditLog.objects.filter(event_type="GRANT_REVOKED", target_id="agent.a s *").exists()
