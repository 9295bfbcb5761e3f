from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from coordinator.actions import approvals
from coordinator.errors import Conflict, Forbidden, NotFound
from coordinator.identity.actors import key_actor_by_name
from coordinator.models import PermissionContext, PluginSetting
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.approval_coverage import Requester, is_call_approved
from coordinator.policy.requests.approvals import Scope, Validity
from tests.approvals.factories import AGENT, MINUTE, NOW, asked, fresh, person, stored, trail

pytestmark = pytest.mark.django_db

ASKER = Requester(requested_by=str(AGENT))


def test_the_asker_withdraws_its_request() -> None:
    row = asked()
    approvals.withdraw_request(row.request_id, actor=AGENT, reason="answered elsewhere", now=NOW)
    row = fresh(row)
    assert (row.status, row.context.closed_by, row.context.reason) == (
        "withdrawn",
        "key:agent-key",
        "answered elsewhere",
    )
    assert trail(row)[-1] == "PERMISSION_REQUEST_WITHDRAWN"


def test_withdrawing_twice_is_harmless() -> None:
    row = asked()
    approvals.withdraw_request(row.request_id, actor=AGENT, now=NOW)
    assert approvals.withdraw_request(row.request_id, actor=AGENT, now=NOW).status == "withdrawn"
    assert trail(row).count("PERMISSION_REQUEST_WITHDRAWN") == 1


def test_another_key_cannot_withdraw_unless_it_may_all() -> None:
    row = asked()
    with pytest.raises(Forbidden):
        approvals.withdraw_request(row.request_id, actor=key_actor_by_name("other"), now=NOW)
    assert trail(row)[-1] == "PERMISSION_REQUEST_REFUSED"
    assert (
        approvals.withdraw_request(
            row.request_id, actor=key_actor_by_name("other"), may_all=True, now=NOW
        ).status
        == "withdrawn"
    )


def test_what_is_decided_cannot_be_withdrawn() -> None:
    row = asked()
    approvals.decide_request(row.request_id, person=person(), verdict="approved", now=NOW)
    with pytest.raises(Conflict, match="alice approved it"):
        approvals.withdraw_request(row.request_id, actor=AGENT, now=NOW)


def test_a_question_after_a_withdrawal_is_a_new_request() -> None:
    row = asked()
    approvals.withdraw_request(row.request_id, actor=AGENT, now=NOW)
    assert asked() != row


def test_requests_past_their_deadline_expire_once() -> None:
    due, later, never = asked(deadline=NOW + MINUTE), asked(agent_id="b", deadline=NOW + 9 * MINUTE), stored()
    assert approvals.expire_due_requests(NOW + MINUTE) == 1
    assert approvals.expire_due_requests(NOW + MINUTE) == 0
    assert [fresh(row).status for row in (due, later, never)] == ["expired", "pending", "pending"]
    assert fresh(due).context.closed_at == NOW + MINUTE
    assert trail(due)[-1] == "PERMISSION_REQUEST_EXPIRED"


def test_a_foreign_row_with_a_deadline_in_another_form_expires_too() -> None:
    row = stored()
    text = (NOW + 119 * MINUTE).strftime("%Y-%m-%dT%H:%M:%S+02:00")  # a minute before NOW
    with connection.cursor() as cursor:
        cursor.execute("UPDATE permission_requests SET expires_at = %s WHERE id = %s", [text, row.pk])
    assert approvals.expire_due_requests(NOW) == 1
    assert fresh(row).status == "expired"


def test_a_verdict_comes_at_the_deadline_without_waiting_for_housekeeping() -> None:
    row = asked(deadline=NOW + MINUTE)
    assert approvals.find_final_answer(row.request_id, NOW + MINUTE - timedelta(microseconds=1)) is None
    told = approvals.find_final_answer(row.request_id, NOW + MINUTE)
    assert (told["status"], told["allowed"]) == ("expired", False)


def test_nobody_waits_for_an_unknown_request() -> None:
    with pytest.raises(NotFound):
        approvals.find_final_answer("req_nope", NOW)


def approved(validity: Validity = Validity.WEEK, **changes: object):
    row = asked(tool_name=None, tool_input=None)
    scope = Scope.CALL if validity is Validity.ONCE else Scope.EVERYWHERE
    return approvals.decide_request(
        row.request_id,
        person=person(),
        verdict="approved",
        validity=validity,
        scope=scope,
        now=NOW,
        **changes,
    )


def test_a_revoked_approval_covers_nothing_from_then_on() -> None:
    row = approved()
    question = ("mind.x", "ProcessExecution", "bash")
    assert is_call_approved(*question, NOW + MINUTE, requester=ASKER)
    approvals.revoke_approval(row.request_id, person=person("bob"), reason="too much", now=NOW + MINUTE)
    assert not is_call_approved(*question, NOW + MINUTE, requester=ASKER)
    row = fresh(row)
    assert (row.status, row.expires_at, row.context.revoked_by) == ("approved", NOW + MINUTE, "bob")
    assert approvals.find_final_answer(row.request_id, NOW + MINUTE)["allowed"] is False
    assert trail(row)[-1] == "PERMISSION_APPROVAL_REVOKED"


@pytest.mark.parametrize("validity", [Validity.ONCE, Validity.HOUR, Validity.UNTIL_REVOKED])
def test_a_revoked_approval_allows_nothing_whatever_its_validity(validity: Validity) -> None:
    row = approved(validity)
    assert rules.current_request_state(fresh(row), NOW).allowed
    PermissionContext.objects.filter(pk=row.request_id).update(revoked_at=NOW, revoked_by="bob")
    state = rules.current_request_state(fresh(row), NOW)
    assert (state.word, state.allowed, state.in_force) == ("Revoked", False, False)


def test_revoking_takes_back_the_permission_that_the_approval_granted() -> None:
    plugin = PluginSetting.objects.create(plugin_id="mind.x", allowed_permissions=["FileRead"])
    row = approved(Validity.ONCE, grant=True)
    approvals.revoke_approval(row.request_id, person=person("bob"), now=NOW + MINUTE)
    plugin.refresh_from_db()
    assert plugin.allowed_permissions == ["FileRead"]


@pytest.mark.parametrize("validity", [Validity.ONCE, Validity.HOUR])
def test_what_is_over_cannot_be_revoked(validity: Validity) -> None:
    row = approved(validity)
    with pytest.raises(Conflict, match="nothing to revoke"):
        approvals.revoke_approval(row.request_id, person=person("bob"), now=NOW + timedelta(hours=2))


def test_only_an_approver_revokes() -> None:
    row = approved()
    with pytest.raises(Forbidden):
        approvals.revoke_approval(row.request_id, person=person("eve", "viewer"), now=NOW)
    assert is_call_approved("mind.x", "ProcessExecution", "bash", NOW, requester=ASKER)


def test_only_an_approver_sees_a_request_and_only_the_first_time_counts() -> None:
    row = asked()
    approvals.record_requests_seen([row.request_id], person=person("eve", "viewer"), now=NOW)
    assert fresh(row).context.seen_at is None
    approvals.record_requests_seen([row.request_id], person=person("alice"), now=NOW)
    approvals.record_requests_seen([row.request_id], person=person("bob"), now=NOW + MINUTE)
    assert (fresh(row).context.seen_by, fresh(row).context.seen_at) == ("alice", NOW)
