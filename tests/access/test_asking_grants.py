"""A grant that asks leaves each call to a person, and is a denial to whoever does not know of asking."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.people import keys
from coordinator.actions.policy import denials, grants
from coordinator.actions.policy.denials import AccessDenial
from coordinator.identity.actors import Actor
from coordinator.models import AskingGrant, AuditLog, Grant, UnreadableText
from coordinator.policy.grants import access
from coordinator.policy.grants.access_preview import load_preview_of_grant_edits
from coordinator.policy.grants.access_requests import RequestedAccess
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.requests import policy_in_force
from coordinator.policy.requests.approvals import Scope, Validity
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import Ruling
from tests.access.cases import add_agents, add_server, call, grant
from tests.people import signed_in

pytestmark = pytest.mark.django_db
NOW = timezone.now()
ALICE = Actor("user", "alice")
ASK = GrantEdit("agent.a", "s", "t", "ask", justification="It moves money.")


@pytest.fixture(autouse=True)
def _world() -> None:
    add_agents("agent.a", "agent.b")
    add_server("s", "opt-out", tools=["t", "u"])


def asked() -> Grant:
    grants.apply_grant_edits([ASK], actor=ALICE, now=NOW)
    return Grant.objects.latest("id")


def word(tool: str = "t") -> str:
    return access.resolve_tool_access("agent.a", "s", tool, NOW).decision


def test_it_asks_and_says_who_set_it() -> None:
    row = asked()
    verdict = access.resolve_tool_access("agent.a", "s", "t", NOW)
    assert (verdict.decision, verdict.is_allowed, verdict.source) == ("ask", False, "tool_grant")
    assert verdict.grant is not None
    assert verdict.grant.id == row.pk
    assert verdict.reason == "user:alice requires approval for each call of this tool: It moves money."
    assert word("u") == "allow"


def test_in_the_table_that_other_programs_read_it_denies() -> None:
    assert Grant.objects.filter(pk=asked().pk).values_list("permission", flat=True).get() == "deny"
    assert Grant.objects.get().effective_permission == "ask"


def test_the_word_ask_of_another_program_still_denies() -> None:
    grant("agent.a", "s", "t", permission="ask")
    assert word() == "deny"


@pytest.mark.parametrize(("other", "decision"), [("allow", "ask"), ("deny", "deny")])
def test_beside_another_row_the_stricter_counts(other: str, decision: str) -> None:
    asked()
    grant("agent.a", "s", "t", permission=other, granted_at="2999-01-01T00:00:00Z")
    assert word() == decision


def test_of_a_tool_it_decides_before_an_allowed_server() -> None:
    grant("agent.a", "s")
    asked()
    assert (word("t"), word("u")) == ("ask", "allow")


def test_with_an_end_that_cannot_be_read_it_denies() -> None:
    row = asked()
    Grant.objects.filter(pk=row.pk).update(expires_at=UnreadableText("soon"))
    assert word() == "deny"


def test_extended_it_still_asks_and_the_past_tells_of_it() -> None:
    row = asked()
    later = NOW + timedelta(minutes=1)
    (done,) = grants.prolong_grant(row.pk, until=NOW + timedelta(hours=1), actor=ALICE, now=later)
    assert done.after is not None
    assert (done.before[0]["permission"], done.after["permission"]) == ("ask", "ask")
    assert access.resolve_tool_access("agent.a", "s", "t", later + timedelta(seconds=1)).decision == "ask"
    assert access.resolve_tool_access("agent.a", "s", "t", later, at=NOW).decision == "ask"


def test_deleted_with_its_server_nothing_of_it_stays() -> None:
    asked()
    grants.delete_grants_of_agent_or_server(actor=ALICE, now=NOW, reason="gone", server_id="s")
    assert not AskingGrant.objects.exists()


def test_the_audit_log_and_evidence_say_that_it_asks() -> None:
    asked()
    row = AuditLog.objects.get(event_type="GRANT_CREATED")
    assert row.permission == "ask"
    assert row.metadata["after"]["permission"] == "ask"
    (told,) = policy_in_force.load_policy_state_for_audit("mcp__s__t", "agent.a", NOW)["grants_in_force"]
    assert (told["permission"], told["justification"]) == ("ask", "It moves money.")


def test_the_guard_of_the_hooks_asks_and_nobodys_word_is_a_no() -> None:
    asked()
    verdict = tool_rules.load_grants_for_calls([("mcp__s__t", "agent.a")], NOW).decide_by_applicable_grants(
        "mcp__s__t", "agent.a", NOW
    )
    assert verdict is not None
    ruling = tool_rules.ruling_from_grant_verdict(verdict)
    assert (ruling.decision, ruling.deny_at_deadline) == ("ask", True)
    assert tool_rules.stricter_ruling(ruling, Ruling("allow")).decision == "ask"
    assert tool_rules.stricter_ruling(ruling, Ruling("deny")).decision == "deny"


def test_an_approved_request_for_access_takes_its_place() -> None:
    asked()
    wish = RequestedAccess("agent.a", "s", "t")
    ask = NewPermissionRequest(wish.permission_subject, justification="Often.", agent_id="agent.a")
    row = approvals.request_permission(ask, actor=ALICE, now=NOW).request
    judge = User.objects.create_superuser("judge")
    approvals.decide_request(
        row.request_id,
        person=judge,
        verdict="approved",
        validity=Validity.HOUR,
        scope=Scope.EVERYWHERE,
        now=NOW,
    )
    assert word() == "allow"


def test_a_preview_says_what_would_wait_for_a_person() -> None:
    call("mcp__s__t")
    shown = load_preview_of_grant_edits([ASK], actor=ALICE, now=NOW)
    (group,) = shown.agent_verdict_changes()
    assert [turn.tool_name for turn in group.approval_needed] == ["t"]
    assert (shown.lost_call_count, shown.ask_call_count, shown.gained_call_count) == (0, 1, 0)


def test_a_check_says_ask_and_the_audit_log_knows() -> None:
    asked()
    _, raw = keys.issue_api_key(name="k", scopes=["agent"], actor=ALICE, now=NOW, agent_id="agent.a")
    client = Client(headers={"Authorization": f"Bearer {raw}"})
    verdict = access.resolve_tool_access("agent.a", "s", "t", NOW)
    answer = verdict.verdict_as_json()
    assert (answer["verdict"], answer["source"]) == ("ask", "tool_grant")
    denials.record_access_denials([AccessDenial("agent.a", "s", "t", verdict, ALICE)], now=NOW)
    row = AuditLog.objects.get(event_type="ACCESS_ASKED")
    assert (row.permission, row.result, row.target_id) == ("ask", "asked", "agent.a s t")
    (server,) = client.get("/api/access/agents/agent.a").json()["servers"]
    assert {one["tool_name"]: one["verdict"] for one in server["tools"]} == {"t": "ask", "u": "allow"}


def test_pages_show_it_and_filter_by_it() -> None:
    row = asked()
    viewer = signed_in("viewer")
    assert "must ask before it may" in viewer.get("/ui/mcp/why/?agent=agent.a&server=s&tool=t").text
    assert 'class="ask own"' in viewer.get("/ui/mcp/matrix/").text
    sheet = viewer.get("/ui/mcp/access/?agent=agent.a&server=s").context["sheet"]
    assert {line.label: line.choice for line in sheet.lines}["t"] == "ask"
    listed = viewer.get("/ui/mcp/grants/?permission=ask").context["table"]
    assert [one.record.pk for one in listed.rows] == [row.pk]
    assert not viewer.get("/ui/mcp/grants/?permission=deny").context["table"].rows
    assert "Ask" in viewer.get(f"/ui/mcp/grants/{row.pk}/").text
