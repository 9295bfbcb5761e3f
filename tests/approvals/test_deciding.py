from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Literal

import pytest
import time_machine
from django.contrib.auth.models import AnonymousUser, User
from django.db import connections

from coordinator.actions import approvals
from coordinator.actions.approvals import rows
from coordinator.errors import BadRequest, Conflict, Forbidden, NotFound, UnprocessableRequest
from coordinator.lib import trace
from coordinator.models import ApiKey, AuditLog, PermissionRequest, PluginSetting
from coordinator.policy.requests.approvals import Scope, Validity, describe_request_outcome
from tests.approvals.factories import AGENT, MINUTE, NOW, asked, fresh, person, stored, trail

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_verdict_keeps_who_when_and_why(verdict: str) -> None:
    row = asked()
    approvals.decide_request(
        row.request_id, person=person(), verdict=verdict, reason=" fine ", now=NOW + MINUTE
    )
    row = fresh(row)
    assert (row.status, row.approved_by, row.approved_at) == (verdict, "alice", NOW + MINUTE)
    assert (row.context.reason, row.context.closed_by, row.context.pending_key) == (
        "fine",
        "user:alice",
        None,
    )


@pytest.mark.parametrize(
    ("validity", "length"),
    [
        (Validity.ONCE, timedelta(0)),
        (Validity.HOUR, timedelta(hours=1)),
        (Validity.SHIFT, timedelta(hours=8)),
        (Validity.WEEK, timedelta(days=7)),
    ],
)
def test_an_approval_ends_when_its_validity_says(validity: Validity, length: timedelta) -> None:
    row = asked(deadline=NOW + 5 * MINUTE)
    scope = Scope.CALL if validity is Validity.ONCE else Scope.EVERYWHERE
    approvals.decide_request(
        row.request_id, person=person(), verdict="approved", validity=validity, scope=scope, now=NOW
    )
    assert fresh(row).expires_at == NOW + length
    assert fresh(row).context.deadline == NOW + 5 * MINUTE


def test_an_approval_until_revoked_has_no_end() -> None:
    row = asked(deadline=NOW + MINUTE)
    approvals.decide_request(
        row.request_id,
        person=person(),
        verdict="approved",
        validity=Validity.UNTIL_REVOKED,
        scope=Scope.EVERYWHERE,
        now=NOW,
    )
    assert fresh(row).expires_at is None


def test_a_verdict_is_audited_with_before_after_reason_and_trace() -> None:
    row = asked()
    trace.begin_trace("trace-of-the-click")
    approvals.decide_request(row.request_id, person=person(), verdict="denied", reason="no", now=NOW)
    trace.end_trace()
    entry = AuditLog.objects.get(event_type="PERMISSION_REQUEST_DENIED")
    assert (entry.actor_id, entry.target_id, entry.result) == ("user:alice", row.request_id, "denied")
    assert (entry.reason, entry.trace_id, entry.permission) == (
        "no",
        "trace-of-the-click",
        "ProcessExecution",
    )
    assert entry.metadata["before"]["status"] == "pending"
    assert entry.metadata["after"]["status"] == "denied"


@pytest.mark.parametrize("first", ["approved", "denied"])
@pytest.mark.parametrize("second", ["approved", "denied"])
def test_who_comes_too_late_is_told_who_decided_what(first: str, second: str) -> None:
    row, bob = asked(), person("bob")
    approvals.decide_request(row.request_id, person=person(), verdict=first, now=NOW)
    with pytest.raises(Conflict, match=f"alice {first} it 12s ago"):
        approvals.decide_request(row.request_id, person=bob, verdict=second, now=NOW + timedelta(seconds=12))
    assert fresh(row).approved_by == "alice"
    assert trail(row)[-1] == "PERMISSION_REQUEST_REFUSED"


@pytest.mark.parametrize("role", [None, "viewer"])
def test_without_the_role_nobody_decides_and_the_attempt_is_audited(role: str | None) -> None:
    row = asked()
    with pytest.raises(Forbidden):
        approvals.decide_request(row.request_id, person=person("eve", role), verdict="approved", now=NOW)
    assert fresh(row).status == "pending"
    entry = AuditLog.objects.get(event_type="PERMISSION_REQUEST_REFUSED")
    assert (entry.actor_id, entry.result, entry.metadata["wanted"]) == ("user:eve", "failure", "approved")


@pytest.mark.parametrize("nobody", [AnonymousUser(), User(username="ghost", is_active=False)])
def test_somebody_not_signed_in_decides_nothing(nobody: User) -> None:
    row = asked()
    with pytest.raises(Forbidden):
        approvals.decide_request(row.request_id, person=nobody, verdict="approved", now=NOW)


def test_who_waited_for_the_row_past_the_deadline_comes_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    row = asked(deadline=NOW + MINUTE)
    held = rows.lock_permission_request
    with time_machine.travel(NOW, tick=False) as clock:

        def held_late(request_id: str) -> PermissionRequest:
            clock.shift(2 * MINUTE)
            return held(request_id)

        monkeypatch.setattr(rows, "lock_permission_request", held_late)
        with pytest.raises(Conflict):
            approvals.decide_request(row.request_id, person=person(), verdict="approved")
    assert fresh(row).status == "pending"


def test_a_request_past_its_deadline_cannot_be_approved() -> None:
    row = asked(deadline=NOW + MINUTE)
    with pytest.raises(Conflict, match="its deadline passed"):
        approvals.decide_request(row.request_id, person=person(), verdict="approved", now=NOW + MINUTE)
    assert fresh(row).status == "pending"


@pytest.mark.parametrize("verdict", ["expired", "withdrawn", "pending", "auto-approved", "Approved", ""])
def test_nothing_but_approved_and_denied_is_a_verdict(verdict: str) -> None:
    row = asked()
    with pytest.raises(UnprocessableRequest):
        approvals.decide_request(row.request_id, person=person(), verdict=verdict, now=NOW)
    assert trail(row) == ["PERMISSION_REQUEST_CREATED"]


def test_an_unknown_request_is_not_found() -> None:
    with pytest.raises(NotFound):
        approvals.decide_request("req_nope", person=person(), verdict="approved", now=NOW)


def test_a_row_of_another_program_can_be_decided() -> None:
    row = stored()
    approvals.decide_request(row.request_id, person=person(), verdict="approved", reason="ok", now=NOW)
    assert fresh(row).status == "approved"
    assert fresh(row).context.reason == "ok"


def test_approving_leaves_the_plugins_permissions_alone() -> None:
    plugin = PluginSetting.objects.create(plugin_id="mind.x", allowed_permissions=[])
    approvals.decide_request(asked().request_id, person=person(), verdict="approved", now=NOW)
    plugin.refresh_from_db()
    assert plugin.allowed_permissions == []


def test_approving_with_a_grant_gives_the_plugin_the_permission() -> None:
    plugin = PluginSetting.objects.create(plugin_id="mind.x", allowed_permissions=["FileRead"])
    row = asked()
    approvals.decide_request(row.request_id, person=person(), verdict="approved", grant=True, now=NOW)
    plugin.refresh_from_db()
    assert plugin.allowed_permissions == ["FileRead", "ProcessExecution"]
    assert fresh(row).context.granted
    assert AuditLog.objects.get(event_type="PERMISSION_GRANTED").target_id == "mind.x"


def test_a_grant_that_cannot_be_made_undoes_the_verdict_with_it() -> None:
    PluginSetting.objects.create(plugin_id="mind.x", allowed_permissions={"odd": 1})
    row = asked()
    with pytest.raises(Conflict, match="cannot be read"):
        approvals.decide_request(row.request_id, person=person(), verdict="approved", grant=True, now=NOW)
    assert fresh(row).status == "pending"
    assert trail(row) == ["PERMISSION_REQUEST_CREATED"]


def test_a_denial_cannot_grant() -> None:
    with pytest.raises(BadRequest):
        approvals.decide_request(asked().request_id, person=person(), verdict="denied", grant=True, now=NOW)


def test_people_may_be_kept_from_deciding_what_their_own_key_asked(settings) -> None:
    ApiKey.objects.create(
        name="agent-key", prefix="", key_hash="h", scopes=[], created_at=NOW, created_by="user:alice"
    )
    row, alice = asked(by=AGENT), person("alice")
    settings.DECIDE_OWN_REQUESTS = False
    with pytest.raises(Forbidden, match="Somebody else must decide"):
        approvals.decide_request(row.request_id, person=alice, verdict="approved", now=NOW)
    approvals.decide_request(row.request_id, person=person("bob"), verdict="approved", now=NOW)
    assert fresh(row).approved_by == "bob"


def test_people_may_decide_their_own_requests_by_default() -> None:
    ApiKey.objects.create(
        name="agent-key", prefix="", key_hash="h", scopes=[], created_at=NOW, created_by="user:alice"
    )
    row = asked(by=AGENT)
    approvals.decide_request(row.request_id, person=person("alice"), verdict="approved", now=NOW)
    assert fresh(row).status == "approved"


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_exactly_one_decides() -> None:
    row = asked()
    people = [person(f"p{number}") for number in range(8)]

    def click(who: User) -> str:
        try:
            verdict = "approved" if who.username in {"p0", "p2", "p4", "p6"} else "denied"
            approvals.decide_request(
                row.request_id, person=User.objects.get(pk=who.pk), verdict=verdict, now=NOW
            )
        except Conflict as told:
            return str(told.detail)
        else:
            return who.username
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(click, people))
    winner = fresh(row).approved_by
    assert [answer for answer in answers if answer in {user.username for user in people}] == [winner]
    assert all(f"{winner} {fresh(row).status} it" in answer for answer in answers if answer != winner)
    assert trail(row).count("PERMISSION_REQUEST_REFUSED") == 7


def test_a_verdict_of_a_program_that_knows_no_locks_is_not_overwritten() -> None:
    row = asked()
    held = rows.lock_permission_request(row.request_id)
    PermissionRequest.objects.filter(pk=row.pk).update(status="denied", approved_by="elsewhere")
    assert not rows.update_request_if_pending(held, status="approved", approved_by="alice")
    assert (held.status, held.approved_by) == ("denied", "elsewhere")


STOPPABLE = {"plugin_id": "claude-code", "metadata": {"can_stop_turn": True}}


def test_a_denial_that_ends_the_turn_is_stored_shown_and_audited() -> None:
    row = asked(**STOPPABLE)
    approvals.decide_request(
        row.request_id, person=person(), verdict="denied", reason="Loops.", stops_turn=True, now=NOW + MINUTE
    )
    row = fresh(row)
    assert (row.status, row.context.answer) == ("denied", {"stops_turn": True})
    assert describe_request_outcome(row, NOW + MINUTE) == "alice denied it just now, turn ended."
    entry = AuditLog.objects.get(event_type="PERMISSION_REQUEST_DENIED")
    assert entry.metadata["answer"] == {"stops_turn": True}


@pytest.mark.parametrize(
    ("verdict", "changes"),
    [
        ("approved", STOPPABLE),
        ("denied", {"plugin_id": "claude-code"}),
        ("denied", {**STOPPABLE, "plugin_id": "mind.x"}),
        ("denied", {**STOPPABLE, "metadata": {"can_stop_turn": "yes"}}),
    ],
    ids=["an approval", "cannot be stopped", "no agent program", "no such word"],
)
def test_no_turn_ends_but_by_a_denial_of_an_agent_that_can_be_stopped(
    verdict: Literal["approved", "denied"], changes: dict[str, Any]
) -> None:
    row = asked(**changes)
    with pytest.raises(BadRequest, match="turn cannot be ended"):
        approvals.decide_request(row.request_id, person=person(), verdict=verdict, stops_turn=True, now=NOW)
    assert (fresh(row).status, fresh(row).context.answer) == ("pending", None)


def test_of_two_denials_the_second_ends_no_turn() -> None:
    row = asked(**STOPPABLE)
    approvals.decide_request(row.request_id, person=person(), verdict="denied", now=NOW)
    with pytest.raises(Conflict):
        approvals.decide_request(
            row.request_id, person=person("bob"), verdict="denied", stops_turn=True, now=NOW
        )
    assert fresh(row).context.answer is None
