"""Accounts: what needs a confirmation, what ends with a role or an account, and what the pages say of it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from coordinator.actions.people import invitations, membership, provider_sign_ins, users
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor
from coordinator.identity.openid.identities import OpenIdIdentity
from coordinator.identity.roles import highest_role_of_user
from coordinator.models import Passkey
from tests.passkeys.authenticator import Authenticator
from tests.passkeys.conftest import Browser
from tests.people import PASSWORD, person
from tests.served import PROOF

pytestmark = pytest.mark.django_db
BY = Actor("user", "ada")


@pytest.fixture(autouse=True)
def localhost(settings: Any) -> None:
    settings.PUBLIC_URL, settings.OWN_HOST = "http://localhost", ""


def later() -> Any:
    return time_machine.travel(timezone.now() + timedelta(minutes=11))


def admin_form(user: User, **changes: str) -> dict[str, str]:
    return {
        "username": user.username,
        "first_name": "",
        "last_name": "",
        "email": "",
        "is_active": "on",
        "role": users.group_role_or_empty(user),
        "version": users.compute_user_version(user),
    } | changes


def test_admin_page_gives_a_role_only_after_confirmation() -> None:
    person("admin")
    grace = person("viewer", "grace")
    browser = Browser()
    browser.sign_in_by_password("admin")
    with later():
        answer = browser.post(f"/admin/auth/user/{grace.pk}/change/", **admin_form(grace, role="admin"))
    assert highest_role_of_user(User.objects.get(pk=grace.pk)) == "viewer"
    assert answer.headers.get("Signalbox-Confirm") == "password"


def test_admin_page_reactivates_only_after_confirmation() -> None:
    person("admin")
    grace = person("viewer", "grace")
    User.objects.filter(pk=grace.pk).update(is_active=False)
    grace.refresh_from_db()
    browser = Browser()
    browser.sign_in_by_password("admin")
    with later():
        browser.post(f"/admin/auth/user/{grace.pk}/change/", **admin_form(grace))
    assert not User.objects.get(pk=grace.pk).is_active


def test_admin_page_sets_passwords_only_after_confirmation() -> None:
    person("admin")
    grace = person("viewer", "grace")
    browser = Browser()
    browser.sign_in_by_password("admin")
    new = "correct horse battery 9"
    with later():
        browser.post(f"/admin/auth/user/{grace.pk}/password/", password1=new, password2=new)
    assert not User.objects.get(pk=grace.pk).check_password(new)


def test_admin_page_makes_an_administrator_only_after_confirmation() -> None:
    person("admin")
    browser = Browser()
    browser.sign_in_by_password("admin")
    new = "correct horse battery 9"
    with later():
        browser.post("/admin/auth/user/add/", username="eve", password1=new, password2=new, role="admin")
    assert not User.objects.filter(username="eve").exists()


def join_with_passkey(token: str, name: str, authenticator: Authenticator | None = None) -> Client:
    client = Client(headers={"Host": "localhost"})
    fields = {"token": token, "username": name, "new_proof": PROOF}
    options = client.post("/ui/people/join/passkey/options/", fields)
    if options.status_code != 200:
        return client
    credential = json.dumps((authenticator or Authenticator()).create(options.json()))
    client.post("/ui/people/join/passkey/", fields | {"credential": credential})
    return client


def test_a_first_password_needs_a_recent_confirmation() -> None:
    ada = person("admin", "ada")
    token = invitations.create_invitation(role="approver", days=3, user=ada, now=timezone.now())[1]
    client = join_with_passkey(token, "grace")
    new = "correct horse battery 9"
    with later():
        answer = client.post(
            "/ui/account/password/", {"new_password1": new, "new_password2": new, "proof": PROOF}
        )
    assert not User.objects.get(username="grace").check_password(new)
    assert answer.headers.get("Signalbox-Confirm") == "passkey password"


def test_no_one_joins_with_a_passkey_under_a_name_that_differs_by_case() -> None:
    ada = person("admin", "ada")
    token = invitations.create_invitation(role="approver", days=3, user=ada, now=timezone.now())[1]
    join_with_passkey(token, "Ada")
    assert not User.objects.filter(username="Ada").exists()


def test_deactivation_in_the_admin_ends_sessions_for_good() -> None:
    person("admin")
    grace = person("viewer", "grace")
    client = Client()
    client.force_login(grace)
    admin = Client()
    admin.force_login(User.objects.get(username="admin"))
    form = admin_form(grace)
    del form["is_active"]
    admin.post(f"/admin/auth/user/{grace.pk}/change/", form)
    assert not User.objects.get(pk=grace.pk).is_active
    admin.post(f"/ui/people/{grace.pk}/reactivate/")
    assert User.objects.get(pk=grace.pk).is_active
    assert client.get("/ui/account/").status_code == 302


def test_a_renamed_person_keeps_the_role_from_before_connecting(settings: Any) -> None:
    settings.OIDC_ISSUER, settings.OIDC_NAME = "https://login.example.com", "Acme"
    person("admin", "ada")
    bob = person("approver", "bob")
    identity = OpenIdIdentity("https://login.example.com", "s1", "bob", "admin")
    now = timezone.now()
    provider_sign_ins.connect_provider_account(bob, identity, "192.0.2.1", now)
    users.update_user(bob.pk, {"username": "robert"}, actor=BY)
    bob = User.objects.get(pk=bob.pk)
    provider_sign_ins.disconnect_provider_account(bob, "192.0.2.1", now)
    assert highest_role_of_user(User.objects.get(pk=bob.pk)) == "approver"


def test_another_with_the_old_name_gets_no_role_of_the_former(settings: Any) -> None:
    """carol came from the provider as an admin; an earlier bob was admin before connecting."""
    settings.OIDC_ISSUER, settings.OIDC_NAME = "https://login.example.com", "Acme"
    person("admin", "ada")
    bob = person("admin", "bob")
    now = timezone.now()
    issuer = "https://login.example.com"
    provider_sign_ins.connect_provider_account(
        bob, OpenIdIdentity(issuer, "s1", "bob", "admin"), "192.0.2.1", now
    )
    users.delete_user(bob.pk, actor=BY)
    new = provider_sign_ins.sign_in_verified_identity(
        OpenIdIdentity(issuer, "s2", "bob", "admin"), "192.0.2.1", now
    )
    new.set_password(PASSWORD)
    new.save()
    provider_sign_ins.disconnect_provider_account(new, "192.0.2.1", now)
    assert highest_role_of_user(User.objects.get(pk=new.pk)) is None


def test_open_invitations_lists_only_what_works() -> None:
    ada = person("admin", "ada")
    bob = person("admin", "bob")
    invitations.create_invitation(role="approver", days=3, user=bob, now=timezone.now(), label="Grace of ops")
    seen = users.compute_user_version(bob)
    membership.change_person_role(bob.pk, "viewer", by=ada, seen_version=seen, now=timezone.now())
    client = Client()
    client.force_login(ada)
    assert "Grace of ops" not in client.get("/ui/people/").content.decode()


def test_nobody_is_said_to_sign_in_with_a_password_that_nobody_knows() -> None:
    ada = person("admin", "ada")
    token = invitations.create_invitation(role="approver", days=3, user=ada, now=timezone.now())[1]
    join_with_passkey(token, "grace")
    client = Client()
    client.force_login(ada)
    page = client.get("/ui/people/")
    [row] = [row for row in page.context["rows"] if row.user.username == "grace"]
    assert row.sign_in_ways == ["1 passkey"]


def test_nobody_disconnects_from_their_only_way_in(settings: Any) -> None:
    settings.OIDC_ISSUER, settings.OIDC_NAME = "https://login.example.com", "Acme"
    ada = person("admin", "ada")
    now = timezone.now()
    token = invitations.create_invitation(role="approver", days=3, user=ada, now=now)[1]
    client = join_with_passkey(token, "grace")
    grace = User.objects.get(username="grace")
    identity = OpenIdIdentity("https://login.example.com", "s1", "grace", "approver")
    provider_sign_ins.connect_provider_account(grace, identity, "192.0.2.1", now)
    client.post(f"/ui/account/passkeys/{Passkey.objects.get().pk}/remove/", {"proof": PROOF})
    assert not Passkey.objects.exists()
    with pytest.raises(Conflict):
        provider_sign_ins.disconnect_provider_account(grace, "192.0.2.1", now)


def test_sessions_that_a_new_password_ended_are_not_counted() -> None:
    ada = person("admin", "ada")
    grace = person("viewer", "grace")
    here, there, admin = Client(), Client(), Client()
    here.force_login(grace), there.force_login(grace), admin.force_login(ada)
    new = "correct horse battery 9"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert "Your other sessions have ended" in here.post("/ui/account/password/", form, follow=True).text
    page = admin.get("/ui/people/")
    [row] = [row for row in page.context["rows"] if row.user == grace]
    assert row.session_count == 1


def test_a_link_that_ended_with_its_makers_role_stays_ended() -> None:
    ada, bob = person("admin", "ada"), person("admin", "bob")
    now = timezone.now()
    token = invitations.create_invitation(role="admin", days=3, user=bob, now=now)[1]
    membership.deactivate_account_and_end_sessions(bob.pk, by=ada, now=now)
    assert invitations.find_invitation_by_token(token, now) is None
    membership.reactivate_person(bob.pk, by=ada, now=now)
    assert invitations.find_invitation_by_token(token, now) is None
