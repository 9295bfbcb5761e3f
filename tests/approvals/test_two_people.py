from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

from coordinator.actions import approvals
from coordinator.actions.people import users
from coordinator.errors import Conflict, Forbidden
from coordinator.identity.actors import Actor, person_actor
from coordinator.models import AuditLog, PermissionContext, PermissionRequest, PluginSetting
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.approvals import Scope, Validity
from coordinator.policy.requests.judged_content import judged_card_digest
from tests.approvals.factories import MINUTE, NOW, asked, fresh, person, trail
from tests.deciders.factories import row as add_deciding_rule

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture
def admin() -> Actor:
    return person_actor(person("root", "admin"))


@pytest.fixture(autouse=True)
def two_people_for_processes(settings) -> None:
    settings.TWO_PERSON_TYPES = ["ProcessExecution"]


def test_the_first_approval_leaves_the_request_waiting() -> None:
    row = asked()
    approvals.decide_request(row.request_id, person=person("alice"), verdict="approved", now=NOW)
    assert fresh(row).status == "pending"
    assert approvals.find_final_answer(row.request_id, NOW) is None
    assert trail(row)[-1] == "PERMISSION_REQUEST_VOTED"


def test_the_second_persons_approval_closes_it_with_both_names_and_the_shorter_validity() -> None:
    row = asked()
    approvals.decide_request(
        row.request_id,
        person=person("alice"),
        verdict="approved",
        reason="read it",
        validity=Validity.HOUR,
        scope=Scope.EVERYWHERE,
        now=NOW,
    )
    approvals.decide_request(
        row.request_id,
        person=person("bob"),
        verdict="approved",
        reason="me too",
        validity=Validity.WEEK,
        scope=Scope.EVERYWHERE,
        now=NOW + MINUTE,
    )
    row = fresh(row)
    assert (row.status, row.approved_by, row.context.validity) == ("approved", "alice, bob", "1h")
    assert row.context.reason == "alice: read it; bob: me too"
    entry = AuditLog.objects.get(event_type="PERMISSION_REQUEST_APPROVED")
    assert entry.metadata["decided_by"] == ["alice", "bob"]


@pytest.mark.parametrize(
    ("first", "second", "end"),
    [
        ({"validity": Validity.UNTIL, "until": NOW + 30 * MINUTE}, {"validity": Validity.HOUR}, 30 * MINUTE),
        ({"validity": Validity.UNTIL, "until": NOW + 90 * MINUTE}, {"validity": Validity.HOUR}, 61 * MINUTE),
        (
            {"validity": Validity.UNTIL_REVOKED},
            {"validity": Validity.UNTIL, "until": NOW + 9 * MINUTE},
            9 * MINUTE,
        ),
        (
            {"validity": Validity.UNTIL, "until": NOW + 9 * MINUTE},
            {"validity": Validity.UNTIL_REVOKED},
            9 * MINUTE,
        ),
    ],
)
def test_of_two_peoples_times_the_approval_that_ends_first_counts(
    first: dict[str, Any], second: dict[str, Any], end: timedelta
) -> None:
    row = asked()
    approve_widely(row, "alice", NOW, **first)
    approve_widely(row, "bob", NOW + MINUTE, **second)
    row = fresh(row)
    assert (row.status, row.expires_at) == ("approved", NOW + end)


def test_an_approval_whose_time_has_passed_does_not_count_and_can_be_given_again() -> None:
    row = asked()
    approve_widely(row, "alice", NOW, validity=Validity.UNTIL, until=NOW + MINUTE)
    approve_widely(row, "bob", NOW + MINUTE, validity=Validity.HOUR)
    assert fresh(row).status == "pending"
    approve_widely(row, "alice", NOW + 2 * MINUTE, validity=Validity.HOUR)
    assert (fresh(row).status, fresh(row).approved_by) == ("approved", "bob, alice")


def approve_widely(row: PermissionRequest, name: str, at: datetime, **more: Any) -> None:
    voter = User.objects.filter(username=name).first() or person(name)
    approvals.decide_request(
        row.request_id, person=voter, verdict="approved", scope=Scope.EVERYWHERE, now=at, **more
    )


def test_one_person_does_not_count_twice() -> None:
    row, alice = asked(), person("alice")
    approvals.decide_request(row.request_id, person=alice, verdict="approved", now=NOW)
    with pytest.raises(Conflict, match="A second person"):
        approvals.decide_request(row.request_id, person=alice, verdict="approved", now=NOW)
    assert fresh(row).status == "pending"


def test_one_denial_is_enough() -> None:
    row = asked()
    approvals.decide_request(row.request_id, person=person("alice"), verdict="approved", now=NOW)
    approvals.decide_request(row.request_id, person=person("bob"), verdict="denied", now=NOW)
    assert (fresh(row).status, fresh(row).approved_by) == ("denied", "bob")


def test_a_grant_takes_the_wish_of_both() -> None:
    plugin = PluginSetting.objects.create(plugin_id="mind.x", allowed_permissions=[])
    row = asked()
    approvals.decide_request(row.request_id, person=person("alice"), verdict="approved", grant=False, now=NOW)
    approvals.decide_request(row.request_id, person=person("bob"), verdict="approved", grant=True, now=NOW)
    plugin.refresh_from_db()
    assert plugin.allowed_permissions == []


def test_loosening_the_rule_does_not_loosen_what_already_waits(settings) -> None:
    row = asked()
    settings.TWO_PERSON_TYPES = []
    approvals.decide_request(row.request_id, person=person("alice"), verdict="approved", now=NOW)
    assert fresh(row).status == "pending"


@pytest.mark.django_db(transaction=True)
def test_two_who_approve_at_the_same_moment_do_not_both_count_as_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = asked()
    people = [person("alice"), person("bob")]
    together, count_needed = Barrier(2), rules.required_approver_count

    def needed_once_both_are_here(request: PermissionRequest) -> int:
        # Whoever holds the row waits in vain for the other, who cannot come this far before the commit.
        with suppress(BrokenBarrierError):
            together.wait(timeout=0.7)
        return count_needed(request)

    def click(who: User) -> None:
        try:
            approvals.decide_request(
                row.request_id, person=User.objects.get(pk=who.pk), verdict="approved", now=NOW
            )
        finally:
            connections.close_all()

    monkeypatch.setattr(rules, "required_approver_count", needed_once_both_are_here)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(click, people))
    assert fresh(row).status == "approved"
    assert sorted(fresh(row).approved_by.split(", ")) == ["alice", "bob"]


def test_an_approval_of_somebody_who_was_switched_off_does_not_count(admin: Actor) -> None:
    row, anna = asked(), person("anna")
    approvals.decide_request(row.request_id, person=anna, verdict="approved", now=NOW)
    users.update_user(anna.pk, {"is_active": False}, actor=admin, role="")
    approvals.decide_request(row.request_id, person=person("bob"), verdict="approved", now=NOW)
    assert fresh(row).status == "pending"
    approvals.decide_request(row.request_id, person=person("carol"), verdict="approved", now=NOW)
    assert fresh(row).approved_by == "bob, carol"


def test_a_new_name_makes_no_second_person(admin: Actor) -> None:
    row, anna = asked(), person("anna")
    approvals.decide_request(row.request_id, person=anna, verdict="approved", now=NOW)
    users.update_user(anna.pk, {"username": "annie"}, actor=admin)
    anna.refresh_from_db()
    with pytest.raises(Conflict, match="A second person"):
        approvals.decide_request(row.request_id, person=anna, verdict="approved", now=NOW)
    approvals.decide_request(row.request_id, person=person("anna"), verdict="approved", now=NOW)
    assert fresh(row).approved_by == "annie, anna", "the name is somebody else's now"


def test_whoever_takes_a_name_that_became_free_takes_no_approvals_with_it(admin: Actor) -> None:
    row, anna = asked(), person("anna")
    approvals.decide_request(row.request_id, person=anna, verdict="approved", now=NOW)
    users.delete_user(anna.pk, actor=admin)
    approvals.decide_request(row.request_id, person=person("anna"), verdict="approved", now=NOW)
    assert fresh(row).status == "pending"


def test_a_new_name_lets_nobody_decide_what_they_asked_for(settings, admin: Actor) -> None:
    settings.DECIDE_OWN_REQUESTS = False
    anna = person("anna")
    row = asked()
    PermissionContext.objects.filter(request=row).update(owner="anna")
    users.update_user(anna.pk, {"username": "annie"}, actor=admin)
    anna.refresh_from_db()
    with pytest.raises(Forbidden, match="asked for this"):
        approvals.decide_request(row.request_id, person=anna, verdict="approved", now=NOW)


def test_a_first_approval_is_told_as_one_and_the_request_leaves_what_is_left_to_decide() -> None:
    row, alice, bob = asked(), person("alice"), person("bob")
    client = Client()
    client.force_login(alice)
    form = {
        "ids": row.request_id,
        "verdict": "approved",
        "judged": f"{judged_card_digest(fresh(row))}:{row.request_id}",
    }
    answer = client.post("/ui/approvals/decide/", form, headers=HTMX)
    assert "Your approval is recorded. One more person must approve." in answer.headers["HX-Trigger"]
    assert "Approved" not in answer.headers["HX-Trigger"]
    card = answer.content.decode()
    assert "Your approval is recorded. One more person must approve." in card
    assert 'value="approved"' not in card
    assert 'value="denied"' in card  # who thinks better of it can still deny
    page = " ".join(client.get("/ui/approvals/").content.decode().split())
    assert "1 request has your approval and waits for one more person" in page
    assert row.request_id not in page
    assert row.request_id in client.get("/ui/approvals/?all=1").content.decode()
    assert rail_number(page) == 0
    other = Client()
    other.force_login(bob)
    theirs = other.get("/ui/approvals/").content.decode()
    assert row.request_id in theirs
    assert "has your approval" not in theirs
    assert rail_number(theirs) == 1
    assert "alice approved, one more needed" in " ".join(theirs.split())


def test_a_row_for_two_of_all_approvers_is_said_once_on_a_card() -> None:
    add_deciding_rule(permission_type="ProcessExecution", needed=2)
    asked()
    client = Client()
    client.force_login(person("alice"))
    page = client.get("/ui/approvals/").content.decode()
    assert "needs two people" in page
    assert "Waits for" not in page


def rail_number(page: str) -> int:
    found = re.search(r'id="rail-badge-approvals"\s+data-badge="(\d+)"', page)
    assert found
    return int(found[1])
