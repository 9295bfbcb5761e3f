"""Nobody removes the passkey that is their only way to sign in; an administrator still may."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from coordinator.actions.people import accounts, provider_sign_ins, recovery_codes, users
from coordinator.errors import Conflict
from coordinator.identity.actors import person_actor
from coordinator.models import AuditLog, Passkey, ProviderIdentity, RecoveryCode
from tests.people import PASSWORD, signed_in

pytestmark = pytest.mark.django_db
REFUSED = "Set a password or make recovery codes first."
REMOVED = "The passkey Laptop is removed. Delete it on your device or in your browser, too."
ISSUER = "https://login.example.com"


@pytest.fixture
def grace() -> User:
    """Somebody who has joined with a passkey, and has a password that nobody knows."""
    user = users.build_user("grace", PASSWORD)
    accounts.set_unknown_password_on_unsaved_user(user)
    user.save()
    return user


def add_passkey(user: User, name: str = "Laptop", host: str = "localhost") -> Passkey:
    return Passkey.objects.create(
        user_id=user.pk,
        name=name,
        credential_id=name,
        public_key="p",
        user_handle="h",
        rp_id=host,
        sign_count=0,
        made_at=timezone.now(),
    )


def remove_and_get_message(user: User, passkey: Passkey) -> str:
    """Press the button on the account page, and return what the page then says."""
    client = Client()
    client.force_login(user)
    answer = client.post(f"/ui/account/passkeys/{passkey.pk}/remove/")
    assert answer.headers["Location"] == "/ui/account/"
    [message] = get_messages(answer.wsgi_request)
    return str(message)


def make_codes(user: User) -> None:
    recovery_codes.replace_recovery_codes(user, actor=person_actor(user), now=timezone.now())


def connect(user: User) -> None:
    now = timezone.now()
    ProviderIdentity.objects.create(
        user_id=user.pk, issuer=ISSUER, subject="s1", made_at=now, last_used_at=now
    )


def test_the_only_way_to_sign_in_is_not_removed(grace: User) -> None:
    passkey = add_passkey(grace)
    assert remove_and_get_message(grace, passkey) == REFUSED
    assert Passkey.objects.get() == passkey
    assert not AuditLog.objects.filter(event_type="PASSKEY_REMOVED").exists()


def test_of_two_passkeys_one_is_removed(grace: User) -> None:
    first, second = add_passkey(grace), add_passkey(grace, "Phone")
    assert remove_and_get_message(grace, first) == REMOVED
    assert remove_and_get_message(grace, second) == REFUSED
    assert Passkey.objects.get() == second


def test_a_passkey_for_another_host_is_no_way_to_sign_in(grace: User, settings: Any) -> None:
    passkey, _ = add_passkey(grace), add_passkey(grace, "Old", "old.localhost")
    assert remove_and_get_message(grace, passkey) == REFUSED
    settings.OIDC_ISSUER, settings.OIDC_NAME = ISSUER, "Acme"
    connect(grace)
    passkey.delete()
    with pytest.raises(Conflict, match="Acme is the only way for you to sign in"):
        provider_sign_ins.disconnect_provider_account(grace, "192.0.2.1", timezone.now())
    assert ProviderIdentity.objects.exists()


def test_unused_recovery_codes_are_another_way(grace: User) -> None:
    passkey = add_passkey(grace)
    make_codes(grace)
    assert remove_and_get_message(grace, passkey) == REMOVED


def test_used_recovery_codes_are_no_way(grace: User) -> None:
    passkey = add_passkey(grace)
    make_codes(grace)
    RecoveryCode.objects.update(used_at=timezone.now())
    assert remove_and_get_message(grace, passkey) == REFUSED


def test_a_password_that_they_have_set_is_another_way(grace: User) -> None:
    passkey = add_passkey(grace)
    accounts.change_password(grace, "correct horse battery 9", actor=person_actor(grace), now=timezone.now())
    assert remove_and_get_message(grace, passkey) == REMOVED


@pytest.mark.parametrize(("issuer", "message"), [(ISSUER, REMOVED), ("", REFUSED), ("https://new", REFUSED)])
def test_the_provider_that_they_are_connected_to_is_another_way(
    grace: User, settings: Any, issuer: str, message: str
) -> None:
    settings.OIDC_ISSUER, settings.OIDC_NAME = issuer, "Acme"
    passkey = add_passkey(grace)
    connect(grace)
    assert remove_and_get_message(grace, passkey) == message


def test_an_administrator_removes_the_only_passkey_of_somebody(grace: User) -> None:
    passkey = add_passkey(grace)
    delete = reverse("admin:coordinator_passkey_delete", args=[passkey.pk])
    assert signed_in("admin").post(delete, {"post": "yes"}).status_code == 302
    assert not Passkey.objects.exists()
