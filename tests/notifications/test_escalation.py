"""Escalation: who is told when nobody has decided in time, once, whoever else asks for it at the same moment."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import connections
from django.utils import timezone

from coordinator.actions import approvals, notifications
from coordinator.actions.people import users
from coordinator.errors import Forbidden, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog, Escalation, EscalationStep, Notification
from tests.approvals.factories import MINUTE, NOW, asked, person
from tests.deciders.factories import group
from tests.deciders.factories import row as deciding_row
from tests.notifications.telling import Told, deliver, listening, told  # noqa: F401 - a fixture
from tests.patience import PATIENCE

pytestmark = pytest.mark.django_db
LONG_AGO = NOW - timedelta(days=1)


def step(after: int, whom: Group | User) -> EscalationStep:
    admin = User.objects.filter(username="root").first() or person("root", "admin")
    named = f"group:{whom.pk}" if isinstance(whom, Group) else f"person:{whom.get_username()}"
    return notifications.create_escalation_step(user=admin, after_minutes=after, whom=named, now=LONG_AGO)


def after(minutes: int) -> None:
    now = NOW + minutes * MINUTE
    notifications.escalate_due_requests(now)
    deliver(now)


def test_when_nobody_decides_the_next_group_is_told_and_the_one_after_it(told: Told) -> None:  # noqa: F811
    first, second, third = (person(name) for name in ("ada", "ben", "cleo"))
    for one in (first, second, third):
        listening(one)
    step(0, first)
    step(5, group("Leads", second))
    step(15, third)
    row = asked()
    after(0)
    assert told.people() == ["ada"]
    after(4)
    assert told.people() == []
    after(5)
    assert told == [("ben", "Signalbox: mind.x asks for ProcessExecution, waiting for 5m")]
    told.clear()
    after(6)
    assert told.people() == []
    after(15)
    assert told.people() == ["cleo"]
    approvals.decide_request(row.request_id, person=third, verdict="approved", now=NOW + 15 * MINUTE)
    after(16)
    assert told.people() == ["ada", "ben"]  # those who were told, and did not decide themselves
    [event, _] = AuditLog.objects.filter(event_type="PERMISSION_REQUEST_ESCALATED").order_by("id")
    assert event.target_id == row.request_id
    assert event.metadata["group"] == "Leads"


def test_nobody_is_told_of_what_is_closed(told: Told) -> None:  # noqa: F811
    ben = person("ben")
    listening(ben)
    step(5, ben)
    approvals.decide_request(asked().request_id, person=person("ada"), verdict="denied", now=NOW)
    asked(target_resource="other", deadline=NOW + 4 * MINUTE)
    deliver(NOW)
    told.clear()
    after(5)
    assert not Escalation.objects.exists()
    assert not Notification.objects.filter(event="escalated").exists()


def test_quiet_hours_do_not_silence_escalation(told: Told) -> None:  # noqa: F811
    ben = person("ben")
    listening(ben)
    notifications.set_quiet_hours(user=ben, begins="00:00", ends="23:59", zone="UTC", now=NOW)
    step(5, ben)
    asked()
    deliver(NOW)
    assert told.people() == []
    after(5)
    assert told.people() == ["ben"]


def test_whom_escalation_has_woken_hears_at_once_that_it_is_over(told: Told) -> None:  # noqa: F811
    ben, ada = person("ben"), person("ada")
    listening(ben)
    listening(ada)
    for one in (ben, ada):
        notifications.set_quiet_hours(user=one, begins="00:00", ends="23:59", zone="UTC", now=NOW)
    step(5, ben)
    row = asked()
    after(0)
    after(5)
    assert told.people() == ["ben"]
    approvals.decide_request(row.request_id, person=person("cleo"), verdict="denied", now=NOW + 6 * MINUTE)
    after(7)
    assert told == [("ben", "Signalbox: Denied by cleo. mind.x asked for ProcessExecution")]


def test_who_may_not_decide_is_not_told_of_it(told: Told) -> None:  # noqa: F811
    eve, ben = person("eve", "viewer"), person("ben")
    listening(ben)
    listening(eve)
    step(5, group("Everybody", eve, ben))
    asked()
    deliver(NOW)
    told.clear()
    after(5)
    assert told.people() == ["ben"]


def test_who_decides_rules_say_whom_a_step_may_tell(told: Told) -> None:  # noqa: F811
    ada, ben = person("ada"), person("ben")
    for one in (ada, ben):
        listening(one)
        step(5, one)
    deciding_row(ada, permission_type="ProcessExecution")
    asked()
    after(0)
    assert told.people() == ["ada"]
    after(5)
    assert told.people() == ["ada"]


def test_where_the_first_step_names_nobody_who_may_decide_everybody_is_told(told: Told) -> None:  # noqa: F811
    listening(person("ben"))
    step(0, group("Empty"))
    asked()
    deliver(NOW)
    assert told.people() == ["ben"]


def test_where_the_first_group_cannot_be_reached_everybody_is_told(told: Told) -> None:  # noqa: F811
    on_call = person("ada")  # with no address, and no device
    listening(person("ben"))
    step(0, on_call)
    asked()
    deliver(NOW)
    assert told.people() == ["ben"]
    listening(on_call, about="tools", patterns="Edit")  # reachable, and wants none of this
    asked(target_resource="other")
    deliver(NOW)
    assert told.people() == []


def test_a_new_step_is_for_requests_that_are_asked_from_then_on() -> None:
    asked(now=LONG_AGO - MINUTE)
    step(5, person("ben"))
    assert notifications.escalate_due_requests(NOW) == 0


def test_steps_follow_people_and_go_with_them_and_with_groups() -> None:
    ben = person("ben")
    step(5, ben)
    step(6, group("Leads", ben))
    asked()
    notifications.escalate_due_requests(NOW + 10 * MINUTE)
    by = Actor("user", "root")
    users.update_user(ben.pk, {"username": "benno"}, actor=by, now=NOW)
    assert EscalationStep.objects.filter(person="benno").exists()
    Group.objects.get(name="Leads").delete()
    users.delete_user(ben.pk, actor=by, now=NOW)
    removed = AuditLog.objects.get(event_type="ESCALATION_STEP_REMOVED")
    assert (removed.actor_id, removed.metadata) == (str(by), {"after_minutes": 5, "person": "benno"})
    assert not EscalationStep.objects.exists()
    assert not Escalation.objects.exists()


def test_the_page_says_which_steps_reach_nobody(signed_in) -> None:
    ben = person("ben")
    step(5, group("Leads", ben, person("eve", "viewer")))
    url, words = "/ui/approvals/notifications/escalation/", '<span class="chip warn">'
    browser = signed_in("ada", "admin")
    assert words in browser.get(url).content.decode()
    listening(User.objects.get(username="eve"))  # who may not decide
    assert words in browser.get(url).content.decode()
    listening(ben)
    assert words not in browser.get(url).content.decode()


def test_only_an_admin_makes_steps() -> None:
    ben = person("ben")
    with pytest.raises(Forbidden):
        notifications.create_escalation_step(user=ben, after_minutes=5, whom="person:ben", now=NOW)
    kept = step(5, ben)
    with pytest.raises(Forbidden):
        notifications.remove_escalation_step(kept.pk, user=ben, now=NOW)
    for wrong in ("group:999999", "person:nobody", "person:eve", "", "group:x"):
        with pytest.raises(UnprocessableRequest):
            notifications.create_escalation_step(
                user=User.objects.get(username="root"), after_minutes=5, whom=wrong, now=NOW
            )


@pytest.mark.django_db(transaction=True)
def test_two_workers_take_a_step_once() -> None:
    ben = person("ben")
    listening(ben)
    step(5, ben)
    rows = [asked(target_resource=str(number)) for number in range(5)]
    both, taken = threading.Barrier(2), []

    def work() -> None:
        try:
            both.wait(PATIENCE)
            taken.append(notifications.escalate_due_requests(NOW + 5 * MINUTE))
        finally:
            connections.close_all()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for one in workers:
        one.start()
    for one in workers:
        one.join(60)
    assert sum(taken) == len(rows)
    assert Escalation.objects.count() == len(rows)
    assert Notification.objects.filter(event="escalated").count() == len(rows)


def test_an_admin_makes_steps_on_the_page_and_an_approver_sees_none_of_the_form(signed_in) -> None:
    leads = group("Leads", person("ben"))
    url = "/ui/approvals/notifications/escalation/"
    assert signed_in("ann").get(url).status_code == 403
    admin = signed_in("root", "admin")
    admin.post(f"{url}add/", {"after_minutes": "5", "whom": f"group:{leads.pk}"})
    page = admin.get(url).content.decode()
    assert "Leads" in page
    assert "After 5 minutes" in page
    assert EscalationStep.objects.get().created_at <= timezone.now()
    assert (
        "Choose a number of minutes"
        in admin.post(
            f"{url}add/", {"after_minutes": "soon", "whom": f"group:{leads.pk}"}, follow=True
        ).content.decode()
    )
    admin.post(f"{url}{EscalationStep.objects.get().pk}/remove/")
    assert not EscalationStep.objects.exists()
