"""A temporary grant lies on top of the permanent one of its slot, and gives way to it: nothing widens by the clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.policy import grants
from coordinator.errors import Conflict, Forbidden
from coordinator.identity.actors import Actor, person_actor
from coordinator.models import Grant, PermissionRequest
from coordinator.policy.grants import access, access_preview
from coordinator.policy.grants.access_requests import RequestedAccess
from coordinator.policy.grants.edits import INHERIT, GrantEdit
from coordinator.policy.requests.approvals import Scope, Validity
from tests.access.cases import add_agents, add_server, grant
from tests.deciders.factories import row as deciding_row
from tests.people import person as new_person
from tests.people import signed_in

pytestmark = pytest.mark.django_db
NOW = timezone.now()
ALICE = Actor("user", "alice")
HOUR = timedelta(hours=1)
SLOT = ("agent.a", "s", "t")


@pytest.fixture(autouse=True)
def _server_that_all_of_may_be_used() -> None:
    add_agents("agent.a")
    add_server("s")
    grants.apply_grant_edits([GrantEdit("agent.a", "s", None, "allow")], actor=ALICE, now=NOW - HOUR)


def put(permission: str, until: datetime | None = None, at: datetime = NOW) -> Grant:
    grants.apply_grant_edits([GrantEdit(*SLOT, permission, until)], actor=ALICE, now=at)
    return Grant.objects.order_by("-id")[0]


def decisions(*hours: float) -> Sequence[str]:
    return [access.resolve_tool_access(*SLOT, NOW + hour * HOUR).decision for hour in hours]


def ask_for_access() -> PermissionRequest:
    subject = RequestedAccess(*SLOT).permission_subject
    ask = NewPermissionRequest(subject, justification="The release waits.", agent_id="agent.a")
    return approvals.request_permission(ask, actor=Actor("key", "bot"), now=NOW).request


def approve(validity: Validity, by: User | None = None) -> PermissionRequest:
    return approvals.decide_request(
        ask_for_access().request_id,
        person=by or new_person("admin"),
        verdict="approved",
        validity=validity,
        scope=Scope.EVERYWHERE,
        now=NOW,
    )


@pytest.mark.parametrize("word", ["ask", "deny"])
def test_an_hour_of_approved_access_gives_way_to_the_permanent_grant(word: str) -> None:
    permanent = put(word, at=NOW - HOUR)
    approve(Validity.ONCE)
    assert decisions(0, 0.5, 2) == ["allow", "allow", word]
    assert Grant.objects.get(pk=permanent.pk).expires_at is None


def test_an_hour_set_in_the_matrix_gives_way_too() -> None:
    put("ask", at=NOW - HOUR)
    put("allow", NOW + HOUR)
    assert decisions(0.5, 2) == ["allow", "ask"]


def test_the_verdict_tells_what_follows() -> None:
    put("ask", at=NOW - HOUR)
    put("allow", NOW + HOUR)
    verdict = access.resolve_tool_access(*SLOT, NOW)
    assert verdict.then is not None
    assert verdict.then.decision == verdict.verdict_as_json()["then"] == "ask"
    assert verdict.reason.endswith(f"Until {NOW + HOUR:%Y-%m-%d %H:%M} UTC, then asked.")
    assert access.resolve_tool_access(*SLOT, NOW + 2 * HOUR).then is None


def test_access_until_it_is_revoked_gives_way_when_it_is_revoked() -> None:
    put("ask", at=NOW - HOUR)
    admin = new_person("admin")
    row = approve(Validity.UNTIL_REVOKED, admin)
    assert decisions(0, 1000) == ["allow", "allow"]
    approvals.revoke_approval(row.request_id, person=admin, now=NOW + HOUR)
    assert decisions(2) == ["ask"]


def test_who_may_not_change_grants_gives_no_access_for_longer_than_a_week() -> None:
    put("ask", at=NOW - HOUR)
    approver, request_id = new_person("approver"), ask_for_access().request_id
    deciding_row(approver)  # from now on administrators alone change grants

    def approve_until(end: datetime) -> PermissionRequest:
        return approvals.decide_request(
            request_id, person=approver, verdict="approved", validity=Validity.UNTIL, until=end, now=NOW
        )

    with pytest.raises(Forbidden, match="Only administrators"):
        approve_until(NOW + timedelta(days=7, seconds=1))
    assert decisions(0) == ["ask"]
    assert approve_until(NOW + timedelta(days=7)).expires_at == NOW + timedelta(days=7)
    assert decisions(0, 24 * 8) == ["allow", "ask"]


def test_access_on_top_of_a_longer_temporary_denial_gives_way_to_it() -> None:
    put("allow", at=NOW - HOUR)
    put("deny", NOW + 8 * HOUR, at=NOW - HOUR)
    approve(Validity.ONCE)
    assert decisions(0.5, 2, 9) == ["allow", "deny", "allow"]


def test_a_shorter_grant_of_the_same_word_shortens() -> None:
    put("ask", at=NOW - HOUR)
    put("allow", NOW + 8 * HOUR, at=NOW - HOUR)
    put("allow", NOW + HOUR)
    assert decisions(0.5, 2) == ["allow", "ask"]


def test_a_permanent_grant_gets_an_end_by_the_same_word() -> None:
    put("allow", at=NOW - HOUR)
    put("allow", NOW + HOUR)
    assert [row.expires_at for row in Grant.objects.filter(tool_name="t").not_ended(NOW)] == [NOW + HOUR]


def test_a_grant_without_end_replaces_every_layer() -> None:
    put("ask", at=NOW - HOUR)
    put("allow", NOW + HOUR)
    put("deny")
    assert decisions(0.5, 2) == ["deny", "deny"]
    put(INHERIT)
    assert not Grant.objects.filter(tool_name="t").not_ended(NOW).exists()


def test_a_denial_that_another_program_writes_later_is_not_covered() -> None:
    put("ask", at=NOW - HOUR)
    put("allow", NOW + HOUR)
    grant(*SLOT, permission="deny", granted_at=NOW)
    assert decisions(0.5) == ["deny"]


def test_a_row_covers_no_newer_one_that_got_the_number_of_what_it_names() -> None:
    put("ask", at=NOW - HOUR)
    top = put("allow", NOW + HOUR)
    newer = grant(*SLOT, permission="deny", granted_at=NOW + timedelta(minutes=1))
    Grant.objects.filter(pk=top.pk).update(metadata={"on_top_of": [newer.pk]})
    assert decisions(0.5) == ["deny"]


@pytest.mark.parametrize("metadata", [[], {"on_top_of": "1"}, {"on_top_of": [None, {}]}, "on_top_of"])
def test_metadata_of_other_programs_covers_nothing(metadata: object) -> None:
    put("ask", at=NOW - HOUR)
    top = put("allow", NOW + HOUR)
    Grant.objects.filter(pk=top.pk).update(metadata=metadata)
    assert decisions(0.5) == ["ask"]


def test_extending_the_temporary_grant_leaves_what_lies_beneath() -> None:
    put("ask", at=NOW - HOUR)
    top = put("allow", NOW + HOUR)
    grants.prolong_grant(top.pk, until=NOW + 3 * HOUR, actor=ALICE, now=NOW)
    assert decisions(2, 4) == ["allow", "ask"]


@pytest.mark.parametrize("validity", [Validity.ONCE, Validity.UNTIL_REVOKED])
@pytest.mark.parametrize("length", [HOUR / 2, 24 * HOUR])
def test_revoked_access_gives_way_to_a_denial_with_an_end(validity: Validity, length: timedelta) -> None:
    put("deny", NOW + length, at=NOW - HOUR)
    admin = new_person("admin")
    request = approve(validity, admin)
    assert decisions(0) == ["allow"]
    approvals.revoke_approval(request.request_id, person=admin, now=NOW + HOUR / 10)
    assert decisions(0.2) == ["deny"]


@pytest.mark.parametrize("word", ["allow", "deny"])
def test_extending_a_grant_ends_and_covers_no_denial_beside_it(word: str) -> None:
    temporary = put(word, NOW + HOUR, at=NOW - HOUR)
    grant(*SLOT, permission="deny", granted_at=NOW)
    with pytest.raises(Conflict, match="counts beside this one"):
        grants.prolong_grant(temporary.pk, until=NOW + 5 * HOUR, actor=ALICE, now=NOW)
    assert decisions(0.5, 6) == ["deny", "deny"]


def test_more_rows_in_a_slot_than_a_stack_has_room_for_are_judged() -> None:
    rows = [
        Grant(
            entry_type="tool_grant",
            agent_id="agent.a",
            server_id="s",
            tool_name="t",
            permission="allow",
            granted_by="another program",
            granted_at=NOW - timedelta(seconds=number),
            expires_at=NOW + timedelta(seconds=number),
        )
        for number in range(1, 1_201)
    ]
    Grant.objects.bulk_create(rows)
    assert decisions(0) == ["allow"]


def test_what_lies_beneath_is_not_extended_unseen() -> None:
    permanent = put("ask", at=NOW - HOUR)
    put("allow", NOW + HOUR)
    with pytest.raises(Conflict, match="on top"):
        grants.prolong_grant(permanent.pk, until=NOW + 3 * HOUR, actor=ALICE, now=NOW)


@pytest.mark.parametrize("is_seen", [True, False])
def test_renewing_an_ended_grant_ends_no_newer_denial(is_seen: bool) -> None:
    ended = put("allow", NOW - HOUR, at=NOW - 2 * HOUR)
    seen = grants.compute_grant_slot_version(grants.load_slot_grants(ended)) if is_seen else None
    put("deny")
    with pytest.raises(Conflict):
        grants.prolong_grant(ended.pk, until=NOW + HOUR, actor=ALICE, now=NOW, seen_version=seen)
    assert decisions(0) == ["deny"]


def test_revoking_compares_the_slot() -> None:
    row = put("deny", at=NOW - HOUR)
    seen = grants.compute_grant_slot_version(grants.load_slot_grants(row))
    put("allow", NOW + HOUR)
    with pytest.raises(Conflict):
        grants.revoke_grant(row.pk, actor=ALICE, now=NOW, seen_version=seen)


def entry(permission: str, until: datetime | None = None) -> dict[str, str | None]:
    return {
        "entry_type": "tool_grant",
        "agent_id": "agent.a",
        "server_id": "s",
        "tool_name": "t",
        "permission": permission,
        "expires_at": until.isoformat() if until else None,
    }


def replace(*entries: dict[str, str | None]) -> int:
    return len(grants.replace_grants_of_server("s", entries, actor=ALICE, now=NOW))


def test_replacing_a_servers_grants_by_what_stands_changes_nothing() -> None:
    put("ask", at=NOW - HOUR)
    put("allow", NOW + HOUR)
    server = {**entry("allow"), "entry_type": "server_grant", "tool_name": None}
    assert replace(server, entry("allow", NOW + HOUR), entry("ask")) == 0


def test_replacing_a_servers_grants_lays_a_temporary_one_on_top() -> None:
    put("ask", at=NOW - HOUR)
    replace(entry("allow", NOW + HOUR))
    assert decisions(0.5, 2) == ["allow", "ask"]


def test_replacing_a_servers_grants_writes_layers() -> None:
    replace(entry("allow", NOW + HOUR), entry("deny", NOW + 2 * HOUR), entry("ask"))
    assert decisions(0.5, 1.5, 3) == ["allow", "deny", "ask"]


def server_decisions(*hours: float) -> Sequence[str]:
    return [access.resolve_tool_access("agent.a", "s", "u", NOW + hour * HOUR).decision for hour in hours]


def test_taking_a_server_from_an_agents_list_leaves_the_ask_beneath() -> None:
    grants.apply_grant_edits([GrantEdit("agent.a", "s", None, "ask")], actor=ALICE, now=NOW)
    grants.apply_grant_edits([GrantEdit("agent.a", "s", None, "allow", NOW + HOUR)], actor=ALICE, now=NOW)
    assert grants.set_servers_allowed_to_agent("agent.a", ["s"], actor=ALICE, now=NOW) == []
    assert len(grants.set_servers_allowed_to_agent("agent.a", [], actor=ALICE, now=NOW)) == 1
    assert server_decisions(0, 2) == ["ask", "ask"]


def test_taking_a_server_from_an_agents_list_leaves_the_denial_on_top() -> None:
    grants.apply_grant_edits([GrantEdit("agent.a", "s", None, "deny", NOW + HOUR)], actor=ALICE, now=NOW)
    with pytest.raises(Conflict):
        grants.set_servers_allowed_to_agent("agent.a", ["s"], actor=ALICE, now=NOW)
    grants.set_servers_allowed_to_agent("agent.a", [], actor=ALICE, now=NOW)
    assert [row.effective_permission for row in Grant.objects.not_ended(NOW)] == ["deny"]


def test_a_preview_resolves_as_the_saved_change_does() -> None:
    put("ask", at=NOW - HOUR)
    edit = GrantEdit(*SLOT, "allow", NOW + HOUR)
    (turn,) = access_preview.load_preview_of_grant_edits([edit], actor=ALICE, now=NOW).turns
    assert turn.after.then is not None
    assert (turn.before.decision, turn.after.decision, turn.after.then.decision) == ("ask", "allow", "ask")
    grants.apply_grant_edits([edit], actor=ALICE, now=NOW)
    assert decisions(0.5, 2) == ["allow", "ask"]


def test_the_pages_show_the_layer_beneath() -> None:
    now = timezone.now()
    grants.apply_grant_edits([GrantEdit(*SLOT, "ask")], actor=ALICE, now=now)
    beneath = Grant.objects.order_by("-id")[0]
    grants.apply_grant_edits([GrantEdit(*SLOT, "allow", now + HOUR)], actor=ALICE, now=now)
    top = Grant.objects.order_by("-id")[0]
    client = signed_in("approver")
    assert f"grant {beneath.pk}" in client.get(f"/ui/mcp/grants/{top.pk}/").content.decode()
    assert "lies on top of this one" in client.get(f"/ui/mcp/grants/{beneath.pk}/").content.decode()
    sheet = client.get("/ui/mcp/access/", {"agent": "agent.a", "server": "s"}).content.decode()
    assert ", then asked" in sheet


def test_whoever_approves_is_named_by_the_temporary_grant() -> None:
    put("ask", at=NOW - HOUR)
    approver = new_person("approver")
    approve(Validity.SHIFT, approver)
    verdict = access.resolve_tool_access(*SLOT, NOW)
    assert verdict.grant is not None
    assert verdict.grant.granted_by == str(person_actor(approver))
