"""The page People: roles, sign-out, deactivation; who may do it, and what protects the last administrator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from coordinator.actions.people import membership, users
from coordinator.errors import Conflict, Forbidden
from coordinator.identity.roles import highest_role_of_user
from coordinator.identity.session_store import list_session_ids_of_person
from coordinator.models import AuditLog, Invitation
from tests.passkeys.conftest import Browser
from tests.people import PASSWORD, person

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC).replace(microsecond=0)  # the audit log keeps 90 days by the clock of the database
PEOPLE = "/ui/people/"


@pytest.fixture
def ada() -> User:
    return person("admin", "ada")


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def change_role(user: User, role: str, by: User) -> User:
    seen = users.compute_user_version(user)
    return membership.change_person_role(user.pk, role, by=by, seen_version=seen, now=NOW)


def test_the_list_says_role_ways_to_sign_in_and_sessions(ada: User) -> None:
    grace = person("approver", "grace")
    client_of(grace), client_of(grace)
    page = client_of(ada).get(PEOPLE)
    [row] = [row for row in page.context["rows"] if row.user == grace]
    assert (row.role, row.sign_in_ways, row.session_count) == ("approver", ["password"], 2)


def test_last_seen_is_the_later_of_sign_in_and_last_action(ada: User) -> None:
    grace = person("approver", "grace")
    User.objects.filter(pk=grace.pk).update(last_login=NOW - timedelta(days=2))
    AuditLog.objects.create(timestamp=NOW, event_type="X", actor_id="user:grace", result="success")
    page = client_of(ada).get(PEOPLE)
    assert {row.user.username: row.last_seen for row in page.context["rows"]}["grace"] == NOW


def test_only_administrators_see_people_and_change_them(ada: User) -> None:
    grace = person("approver", "grace")
    client = client_of(grace)
    assert client.get(PEOPLE).status_code == 403
    for act in ("role", "sign-out", "deactivate", "reactivate"):
        assert client.post(f"{PEOPLE}{ada.pk}/{act}/", {"role": "admin"}).status_code == 403
    for action in (
        membership.deactivate_account_and_end_sessions,
        membership.reactivate_person,
        membership.sign_out_person_everywhere,
    ):
        with pytest.raises(Forbidden):
            action(ada.pk, by=grace, now=NOW)
    with pytest.raises(Forbidden):
        change_role(grace, "admin", by=grace)


def test_a_role_is_changed_and_audited(ada: User) -> None:
    grace = person("viewer", "grace")
    version = users.compute_user_version(grace)
    client_of(ada).post(f"{PEOPLE}{grace.pk}/role/", {"role": "approver", "version": version})
    assert highest_role_of_user(User.objects.get(pk=grace.pk)) == "approver"
    row = AuditLog.objects.get(event_type="USER_UPDATED")
    assert (row.actor_id, row.metadata) == (
        "user:ada",
        {"before": {"role": "viewer"}, "after": {"role": "approver"}},
    )


def test_a_superuser_who_gets_a_lower_role_is_no_administrator_any_more(ada: User) -> None:
    root = person("admin", "root")
    User.objects.filter(pk=root.pk).update(is_superuser=True)
    root.refresh_from_db()
    change_role(root, "viewer", by=ada)
    assert highest_role_of_user(User.objects.get(pk=root.pk)) == "viewer"


def test_of_two_editors_the_second_is_refused(ada: User) -> None:
    grace = person("viewer", "grace")
    form = {"role": "approver", "version": users.compute_user_version(grace)}
    client = client_of(ada)
    client.post(f"{PEOPLE}{grace.pk}/role/", form)
    assert client.post(f"{PEOPLE}{grace.pk}/role/", form | {"role": "admin"}).status_code == 422
    assert highest_role_of_user(User.objects.get(pk=grace.pk)) == "approver"


def test_nobody_changes_their_own_role_or_deactivates_themselves(ada: User) -> None:
    person("admin", "bob")
    with pytest.raises(Conflict, match="your own role"):
        change_role(ada, "viewer", by=ada)
    with pytest.raises(Conflict, match="your own role"):
        membership.deactivate_account_and_end_sessions(ada.pk, by=ada, now=NOW)


def test_two_administrators_cannot_both_take_the_others_role(ada: User) -> None:
    """Whoever was an administrator when their page was drawn may be none by the time they press the button."""
    bob = person("admin", "bob")
    change_role(ada, "viewer", by=bob)
    with pytest.raises(Forbidden):
        change_role(bob, "viewer", by=User.objects.get(pk=ada.pk))
    assert highest_role_of_user(User.objects.get(pk=bob.pk)) == "admin"


def test_the_last_administrator_stays_one(ada: User) -> None:
    bob = person("admin", "bob")
    stale = User.objects.get(pk=ada.pk)
    highest_role_of_user(stale)  # read while ada was an administrator
    User.objects.filter(pk=ada.pk).update(is_active=False)
    for act in (
        lambda: change_role(bob, "viewer", by=stale),
        lambda: membership.deactivate_account_and_end_sessions(bob.pk, by=stale, now=NOW),
    ):
        with pytest.raises(Conflict, match="no active administrator"):
            act()
    assert highest_role_of_user(User.objects.get(pk=bob.pk)) == "admin"


def test_a_sign_out_ends_all_sessions_of_that_person_alone(ada: User) -> None:
    grace = person("viewer", "grace")
    first, second, admin = client_of(grace), client_of(grace), client_of(ada)
    answer = admin.post(f"{PEOPLE}{grace.pk}/sign-out/", follow=True)
    assert "signed out of 2 sessions" in answer.content.decode()
    assert [client.get("/ui/account/").status_code for client in (first, second, admin)] == [302, 302, 200]
    assert list_session_ids_of_person(grace.pk) == []
    row = AuditLog.objects.get(event_type="PERSON_SIGNED_OUT")
    assert (row.actor_id, row.target_id, row.metadata) == ("user:ada", "grace", {"sessions": 2})


def test_a_deactivated_person_is_out_and_stays_out(ada: User) -> None:
    grace = person("viewer", "grace")
    client = client_of(grace)
    client_of(ada).post(f"{PEOPLE}{grace.pk}/deactivate/")
    assert not Session.objects.filter(pk__in=list_session_ids_of_person(grace.pk)).exists()
    assert client.get("/ui/account/").status_code == 302
    form = {"username": "grace", "password": PASSWORD}
    assert Client().post("/ui/sign-in/", form).status_code == 422
    client_of(ada).post(f"{PEOPLE}{grace.pk}/reactivate/")
    assert client.get("/ui/account/").status_code == 302  # the old session does not come back
    assert Client().post("/ui/sign-in/", form).status_code == 302


def test_oneself_signs_out_all_other_browsers_from_the_account_page(ada: User) -> None:
    here, there = client_of(ada), client_of(ada)
    here.post("/ui/account/sign-out-others/")
    assert here.get("/ui/account/").status_code == 200
    assert there.get("/ui/account/").status_code == 302


def test_a_person_who_is_not_there_is_not_found(ada: User) -> None:
    client = client_of(ada)
    assert client.get(f"{PEOPLE}999999/").status_code == 404
    assert client.post(f"{PEOPLE}999999/deactivate/").status_code == 404


@pytest.mark.parametrize("within", [0, 300])
@pytest.mark.parametrize("act", ["invite/", "{}/role/", "{}/reactivate/"])
def test_letting_people_in_needs_a_recent_confirmation(settings: Any, within: int, act: str) -> None:
    settings.CONFIRM_DECISIONS_WITHIN, settings.PUBLIC_URL, settings.OWN_HOST = within, "http://localhost", ""
    person("admin")
    grace = person("viewer", "grace")
    browser = Browser()
    browser.sign_in_by_password("admin")
    form = {"role": "admin", "days": "3", "version": users.compute_user_version(grace)}
    with time_machine.travel(timezone.now() + timedelta(minutes=11)):
        answer = browser.post(PEOPLE + act.format(grace.pk), **form)
    assert answer.headers.get("Signalbox-Confirm") == "password"
    assert not Invitation.objects.exists()
    assert highest_role_of_user(User.objects.get(pk=grace.pk)) == "viewer"
