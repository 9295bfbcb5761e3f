"""The account page: adding, naming and removing passkeys, and making recovery codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from coordinator.actions.people import passkeys as actions
from coordinator.actions.people import users
from coordinator.identity.actors import system_actor
from coordinator.models import AuditLog, Passkey, RecoveryCode
from tests.passkeys.authenticator import Authenticator
from tests.passkeys.conftest import ADD, ADD_OPTIONS, CODES, Browser
from tests.people import person

pytestmark = pytest.mark.django_db
Make = Callable[..., Browser]
ACCOUNT = "/ui/account/"


def test_several_passkeys_are_listed_by_name(with_passkey: Make) -> None:
    browser = with_passkey()
    browser.authenticator = Authenticator()
    options = browser.post(ADD_OPTIONS).json()
    assert options["authenticatorSelection"] | {} == {
        "residentKey": "required",
        "requireResidentKey": True,
        "userVerification": "required",
    }
    assert [one["id"] for one in options["excludeCredentials"]] == [Passkey.objects.get().credential_id]
    browser.post(ADD, name="  Security \n key ", credential=json.dumps(browser.authenticator.create(options)))
    page = browser.client.get(ACCOUNT).content.decode()
    assert "Laptop" in page
    assert "Security key" in page
    assert "never used" in page
    assert len({row.user_handle for row in Passkey.objects.all()}) == 1
    added = AuditLog.objects.filter(event_type="PASSKEY_ADDED").order_by("id")
    assert [(row.actor_id, row.metadata["name"]) for row in added] == [
        ("user:approver", "Laptop"),
        ("user:approver", "Security key"),
    ]


def test_a_passkey_without_a_name_is_given_one(with_passkey: Make) -> None:
    browser = with_passkey()
    browser.authenticator = Authenticator()
    browser.add_passkey("")
    browser.authenticator = Authenticator()
    browser.add_passkey("n" * 300)
    assert [row.name for row in Passkey.objects.order_by("id")] == ["Laptop", "Passkey 2", "n" * 64]


def test_the_same_passkey_is_not_added_twice(with_passkey: Make) -> None:
    browser = with_passkey()
    browser.add_passkey("again")
    assert Passkey.objects.count() == 1
    assert "already in use" in browser.client.get(ACCOUNT).content.decode()


def test_a_person_has_only_so_many(with_passkey: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = with_passkey()
    monkeypatch.setattr(actions, "MAX_PASSKEYS", 1)
    assert browser.post(ADD_OPTIONS).status_code == 409


FAULTS: dict[str, Callable[[Authenticator], None]] = {
    "wrong origin": lambda device: setattr(device, "origin", "http://localhost:3000"),
    "another host's": lambda device: setattr(device, "rp_id", "evil.example"),
    "unverified user": lambda device: setattr(device, "verifies", False),
    "absent user": lambda device: setattr(device, "is_present", False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_proves_nothing_is_not_added(fault: str) -> None:
    browser = signed_in()
    FAULTS[fault](browser.authenticator)
    browser.add_passkey()
    assert Passkey.objects.count() == 0


@pytest.mark.parametrize("fmt", ["tpm", "android-safetynet", "fido-u2f", "apple"])
def test_an_attestation_that_nobody_asked_for_is_not_read(fmt: str, caplog: pytest.LogCaptureFixture) -> None:
    browser = signed_in()
    options = browser.post(ADD_OPTIONS).json()
    browser.post(ADD, credential=json.dumps(browser.authenticator.create(options, fmt)))
    assert Passkey.objects.count() == 0
    assert "an attestation of the kind" in caplog.text  # and not what the library says of its contents


def test_the_challenge_of_another_person_adds_nothing(with_passkey: Make) -> None:
    with_passkey()
    other = signed_in("viewer")
    other.secret = "1" * 64
    options = other.client.post(ADD_OPTIONS, {"proof": "5e" * 32}).json()
    mine = Browser()
    person("admin")
    mine.sign_in_by_password("admin")
    mine.post(ADD, credential=json.dumps(mine.authenticator.create(options)))
    assert not Passkey.objects.filter(user_id=User.objects.get(username="admin").pk).exists()


def test_a_challenge_adds_one_passkey(with_passkey: Make) -> None:
    browser = signed_in("viewer")
    options = browser.post(ADD_OPTIONS).json()
    browser.post(ADD, credential=json.dumps(Authenticator().create(options)))
    browser.post(ADD, credential=json.dumps(Authenticator().create(options)))
    assert Passkey.objects.count() == 1


@pytest.mark.parametrize("path", [ADD_OPTIONS, ADD, CODES, "/ui/account/passkeys/1/remove/"])
def test_ways_to_sign_in_change_only_for_who_confirmed_lately(path: str) -> None:
    """A browser that was left open is not enough, whatever the setting for decisions says."""
    browser = signed_in()
    with time_machine.travel(timezone.now() + timedelta(minutes=10, seconds=1)):
        answer = browser.post(path)
        assert (answer.status_code, answer.headers["Signalbox-Confirm"]) == (403, "password")
    assert RecoveryCode.objects.count() == 0


def test_a_person_removes_their_own_passkey(with_passkey: Make) -> None:
    browser = with_passkey()
    row = Passkey.objects.get()
    browser.post(f"/ui/account/passkeys/{row.pk}/remove/")
    assert Passkey.objects.count() == 0
    audit = AuditLog.objects.get(event_type="PASSKEY_REMOVED")
    assert (audit.actor_id, audit.target_id, audit.metadata["name"]) == (
        "user:approver",
        "approver",
        "Laptop",
    )


def test_nobody_removes_the_passkey_of_another(with_passkey: Make) -> None:
    with_passkey()
    other = signed_in("viewer")
    other.post(f"/ui/account/passkeys/{Passkey.objects.get().pk}/remove/")
    assert Passkey.objects.count() == 1


def test_a_passkey_made_for_another_host_is_shown_as_such(with_passkey: Make, settings: Any) -> None:
    browser = with_passkey()
    settings.PUBLIC_URL = "http://new.localhost"
    browser.client.defaults["HTTP_HOST"] = "new.localhost"
    settings.ALLOWED_HOSTS = ["*"]
    page = browser.client.get(ACCOUNT, headers={"Host": "new.localhost"}).content.decode()
    assert "Made for localhost" in page
    assert "does not work at new.localhost" in page


def test_who_is_deleted_leaves_no_passkey_and_no_code(with_passkey: Make) -> None:
    browser = with_passkey()
    browser.post(CODES)
    person("admin")
    users.delete_user(User.objects.get(username="approver").pk, actor=system_actor("test"))
    assert (Passkey.objects.count(), RecoveryCode.objects.count()) == (0, 0)


def codes_of(browser: Browser) -> list[str]:
    page = browser.post(CODES).content.decode()
    return page.partition('id="codes"')[2].partition(">")[2].partition("</pre>")[0].split()


def test_recovery_codes_are_shown_once_and_stored_as_hashes() -> None:
    browser = signed_in()
    codes = codes_of(browser)
    assert len(set(codes)) == 10
    assert "You have 10 unused recovery codes" in browser.client.get(ACCOUNT).content.decode()
    assert codes[0] not in browser.client.get(ACCOUNT).content.decode()
    stored = " ".join(RecoveryCode.objects.values_list("code_hash", flat=True))
    assert not any(code in stored or code.replace("-", "") in stored for code in codes)
    assert AuditLog.objects.filter(event_type="RECOVERY_CODES_CREATED").count() == 1
    assert browser.client.get(CODES).headers["Location"] == ACCOUNT


def test_a_recovery_code_signs_in_once() -> None:
    browser = signed_in()
    code = codes_of(browser)[0]
    for expected, typed in ((302, f" {code.upper()} "), (422, code)):
        client = Client(headers={"Host": "localhost"})
        answer = client.post("/ui/sign-in/", {"username": "approver", "password": typed})
        assert answer.status_code == expected
    row = AuditLog.objects.filter(event_type="SIGNED_IN").latest("id")
    assert row.metadata == {"by": "recovery code", "left": 9}


def test_new_codes_end_the_old_ones() -> None:
    browser = signed_in()
    old = codes_of(browser)[0]
    codes_of(browser)
    answer = Client().post("/ui/sign-in/", {"username": "approver", "password": old})
    assert answer.status_code == 422
    assert RecoveryCode.objects.count() == 10


def test_a_code_is_its_persons_alone() -> None:
    browser = signed_in()
    code = codes_of(browser)[0]
    person("admin")
    assert Client().post("/ui/sign-in/", {"username": "admin", "password": code}).status_code == 422


def test_guessing_at_codes_is_slowed_as_at_passwords() -> None:
    browser = signed_in()
    code = codes_of(browser)[0]
    guesser = Client(REMOTE_ADDR="203.0.113.7")
    for _ in range(20):
        guesser.post("/ui/sign-in/", {"username": "approver", "password": "aaaa-bbbb-cccc-dddd"})
    assert guesser.post("/ui/sign-in/", {"username": "approver", "password": code}).status_code == 429


def test_who_is_switched_off_gets_in_with_no_code() -> None:
    browser = signed_in()
    code = codes_of(browser)[0]
    User.objects.filter(username="approver").update(is_active=False)
    assert Client().post("/ui/sign-in/", {"username": "approver", "password": code}).status_code == 422


def signed_in(role: str = "approver") -> Browser:
    person(role)
    browser = Browser()
    browser.sign_in_by_password(role)
    return browser
