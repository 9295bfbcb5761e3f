"""Signing in with a passkey: who gets in, and who does not."""

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
from coordinator.identity import browser_secrets
from coordinator.models import AuditLog, Passkey, PasskeyChallenge, ProviderIdentity
from tests.passkeys.authenticator import Authenticator, encode
from tests.passkeys.conftest import SIGN_IN, SIGN_IN_OPTIONS, Browser
from tests.people import person
from tests.served import PROOF

pytestmark = pytest.mark.django_db
Make = Callable[..., Browser]


@pytest.fixture
def owner(with_passkey: Make) -> Browser:
    """A person with a passkey who is not signed in (any more)."""
    browser = with_passkey()
    browser.client = Client(headers={"Host": "localhost"})
    return browser


def refusals() -> list[str]:
    rows = AuditLog.objects.filter(event_type="SIGN_IN_FAILED").order_by("id")
    return [row.metadata["problem"] for row in rows]


def test_a_passkey_signs_in_without_a_name_or_a_password(owner: Browser) -> None:
    options = owner.sign_in_options()
    assert (options["rpId"], options["userVerification"]) == ("localhost", "required")
    assert options.get("allowCredentials", []) == []
    answer = owner.sign_in(next="/ui/account/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/ui/account/")
    assert owner.signed_in_as == "approver"
    row = AuditLog.objects.filter(event_type="SIGNED_IN").latest("id")
    assert (row.actor_id, row.reason, row.metadata["name"]) == ("user:approver", "from 127.0.0.1", "Laptop")


def test_the_session_is_tied_to_the_browser_that_signed_in(owner: Browser) -> None:
    owner.sign_in()
    assert owner.client.session[browser_secrets.PROOF_SESSION_KEY]["by"] == "passkey"
    thief = Client(headers={"Host": "localhost"})
    thief.cookies = owner.client.cookies
    assert thief.post("/ui/account/provider/leave/").status_code in {403, 404}
    assert owner.post("/ui/sign-in/again/").status_code == 204


def test_the_counter_and_the_last_use_are_kept(owner: Browser) -> None:
    owner.sign_in()
    row = Passkey.objects.get()
    assert row.sign_count == 1
    assert row.last_used_at is not None


def wrong_origin(browser: Browser) -> None:
    browser.authenticator.origin = "http://localhost:3000"


def other_scheme(browser: Browser) -> None:
    browser.authenticator.origin = "https://localhost"


def other_host(browser: Browser) -> None:
    browser.authenticator.rp_id = "evil.example"


def unverified_user(browser: Browser) -> None:
    browser.authenticator.verifies = False


def absent_user(browser: Browser) -> None:
    browser.authenticator.is_present = False


def counter_going_back(browser: Browser) -> None:
    Passkey.objects.update(sign_count=5)


def other_key(browser: Browser) -> None:
    browser.authenticator.key = Authenticator().key


def other_handle(browser: Browser) -> None:
    browser.authenticator.handle = b"somebody else"


@pytest.mark.parametrize(
    ("fault", "problem", "advice"),
    [
        (wrong_origin, "Unexpected client data origin", "work only at http://localhost."),
        (other_scheme, "Unexpected client data origin", "work only at http://localhost."),
        (other_host, "Unexpected RP ID hash", "could not be verified"),
        (unverified_user, "user was not verified", "did not check that it is you"),
        (absent_user, "User was not present", "could not be verified"),
        (counter_going_back, "sign count of 1 was not greater than current count of 5", "counter went back"),
        (other_key, "Could not verify authentication signature", "could not be verified"),
        (other_handle, "user handle is another account", "could not be verified"),
    ],
)
def test_what_proves_nothing_signs_nobody_in(
    owner: Browser, fault: Callable[[Browser], None], problem: str, advice: str
) -> None:
    fault(owner)
    answer = owner.sign_in()
    assert (answer.status_code, owner.signed_in_as) == (403, "")
    assert advice in answer.content.decode()
    assert problem in refusals()[0]


def test_a_challenge_is_good_once(owner: Browser) -> None:
    used = owner.authenticator.get(owner.sign_in_options())
    assert owner.sign_in(used).status_code == 302
    owner.client = Client(headers={"Host": "localhost"})
    Passkey.objects.update(sign_count=0)  # not the counter is what refuses it
    assert owner.sign_in(used).status_code == 403
    assert "unknown, used or expired" in refusals()[0]


def test_a_refused_answer_uses_its_challenge_up(owner: Browser) -> None:
    owner.authenticator.verifies = False
    options = owner.sign_in_options()
    assert owner.sign_in(owner.authenticator.get(options)).status_code == 403
    owner.authenticator.verifies = True
    assert owner.sign_in(owner.authenticator.get(options)).status_code == 403
    assert PasskeyChallenge.objects.count() == 0


def test_a_challenge_ends_after_five_minutes(owner: Browser) -> None:
    with time_machine.travel(timezone.now(), tick=False) as clock:
        used = owner.authenticator.get(owner.sign_in_options())
        clock.shift(timedelta(minutes=5))
        assert owner.sign_in(used).status_code == 403
        used = owner.authenticator.get(owner.sign_in_options())
        clock.shift(timedelta(minutes=4, seconds=59))
        assert owner.sign_in(used).status_code == 302


def test_a_challenge_of_nobodys_making_is_none(owner: Browser) -> None:
    options = owner.sign_in_options() | {"challenge": encode(b"x" * 32)}
    assert owner.sign_in(owner.authenticator.get(options)).status_code == 403


def test_a_challenge_is_good_in_the_browser_that_asked_for_it_alone(owner: Browser) -> None:
    used = owner.authenticator.get(owner.sign_in_options())
    other = Browser(secret="0" * 64)
    assert other.sign_in(used).status_code == 403
    assert "another browser" in refusals()[0]


def test_a_challenge_for_a_confirmation_signs_nobody_in(with_passkey: Make) -> None:
    browser = with_passkey()
    answer = json.loads(browser.confirmation())
    browser.client = Client(headers={"Host": "localhost"})
    assert browser.sign_in(answer).status_code == 403
    assert "another purpose" in refusals()[0]


def test_who_is_switched_off_stays_out(owner: Browser) -> None:
    User.objects.filter(username="approver").update(is_active=False)
    assert owner.sign_in().status_code == 403
    assert owner.signed_in_as == ""


def test_a_removed_passkey_signs_nobody_in(owner: Browser) -> None:
    Passkey.objects.all().delete()
    answer = owner.sign_in()
    assert answer.status_code == 403
    assert "does not know this passkey" in answer.content.decode()


def test_a_passkey_of_a_person_who_is_gone_signs_nobody_in(owner: Browser) -> None:
    User.objects.filter(username="approver").delete()  # past the actions
    assert owner.sign_in().status_code == 403


def test_who_signs_in_elsewhere_only_confirms_with_it(owner: Browser, settings: Any) -> None:
    """The provider sets their role at each sign-in, and keeps out who has left."""
    user = User.objects.get(username="approver")
    user.set_unusable_password()
    user.save()
    now = timezone.now()
    ProviderIdentity.objects.create(user_id=user.pk, issuer="i", subject="s", made_at=now, last_used_at=now)
    answer = owner.sign_in()
    assert (answer.status_code, owner.signed_in_as) == (403, "")
    assert "only confirms" in answer.content.decode()


def test_no_passkey_signs_in_while_passwords_are_off(owner: Browser, settings: Any) -> None:
    settings.PASSWORD_SIGN_IN, settings.OIDC_ISSUER, settings.OIDC_NAME = False, "https://i", "Acme"
    assert owner.sign_in().status_code == 403
    assert "Sign in with a passkey" not in owner.client.get("/ui/sign-in/").content.decode()


GARBAGE = [
    "",
    "{}",
    "null",
    "[]",
    "{" * 4000,
    "[" * 4000,
    '{"id": 1, "response": {"clientDataJSON": ""}}',
    '{"id": "a", "response": {"clientDataJSON": "e30"}}',
    '{"id": "a", "response": {"clientDataJSON": "' + "é" * 10 + '"}}',
    "x" * 17_000,
]


@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_refused(owner: Browser, text: str) -> None:
    answer = owner.client.post(SIGN_IN, {"credential": text, "new_proof": PROOF})
    assert answer.status_code == 403
    assert owner.signed_in_as == ""


@pytest.mark.parametrize("part", ["authenticatorData", "signature"])
@pytest.mark.parametrize("data", [b"", b"\x00" * 37, b"\x81" * 4000, b"\x9b" + b"\xff" * 200])
def test_bytes_of_no_meaning_are_refused(owner: Browser, part: str, data: bytes) -> None:
    answer = owner.authenticator.get(owner.sign_in_options())
    answer["response"][part] = encode(data)
    assert owner.sign_in(answer).status_code == 403


def test_refused_passkeys_slow_their_network_down(owner: Browser) -> None:
    owner.authenticator.verifies = False
    stranger = Browser(address="203.0.113.7")
    stranger.authenticator = owner.authenticator
    with time_machine.travel(timezone.now(), tick=False) as clock:
        for _ in range(30):
            assert stranger.sign_in().status_code == 403
        owner.authenticator.verifies = True
        answer = stranger.sign_in()
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "600")
        # The owner's own browser, which is known, has a count of its own; and so has the password.
        assert AuditLog.objects.filter(event_type="SIGN_IN_FAILED").count() == 30
        stranger.sign_in_by_password("approver")
        clock.shift(timedelta(minutes=10))
        stranger.client = Client(headers={"Host": "localhost"}, REMOTE_ADDR="203.0.113.7")
        assert stranger.sign_in().status_code == 302


def test_a_known_browser_is_not_slowed_by_its_network(with_passkey: Make) -> None:
    owner = with_passkey()
    owner.post("/ui/sign-out/")
    stranger = Browser()
    with time_machine.travel(timezone.now(), tick=False):
        for _ in range(300):
            actions.REFUSED.record_refusal_for_limit(
                "127.0.0.1", actor=actions.system_actor("sign-in"), target=None, now=timezone.now()
            )
        stranger.authenticator = owner.authenticator
        assert stranger.sign_in().status_code == 429
        assert owner.sign_in().status_code == 302


def test_wrong_passwords_keep_nobody_out_who_has_a_passkey(owner: Browser) -> None:
    guesser = Client(REMOTE_ADDR="203.0.113.9")
    with time_machine.travel(timezone.now(), tick=False):
        for _ in range(21):
            last = guesser.post("/ui/sign-in/", {"username": "approver", "password": "wrong"})
        assert last.status_code == 429
        assert owner.sign_in().status_code == 302


def test_one_network_cannot_fill_the_table(owner: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_OPEN_CHALLENGES", 3)
    mine = owner.sign_in_options()
    flood = Browser(address="203.0.113.7")
    with time_machine.travel(timezone.now()):
        for _ in range(6):
            flood.sign_in_options()
    assert PasskeyChallenge.objects.filter(source="203.0.113.7").count() == 3
    assert owner.sign_in(owner.authenticator.get(mine)).status_code == 302


def test_expired_challenges_are_swept(owner: Browser) -> None:
    owner.sign_in_options()
    with time_machine.travel(timezone.now() + timedelta(minutes=6)):
        owner.sign_in_options()
        assert PasskeyChallenge.objects.count() == 1


@pytest.mark.parametrize(
    ("public_url", "words"),
    [
        ("http://signalbox.example.com", "Passkeys need HTTPS"),
        ("http://127.0.0.1:8765", "Passkeys need a host name"),
        ("http://[::1]:8765", "Passkeys need a host name"),
    ],
)
def test_where_passkeys_cannot_work_it_says_so(settings: Any, public_url: str, words: str) -> None:
    person("approver")
    settings.PUBLIC_URL = public_url
    client = Client(headers={"Host": "localhost"})
    answer = client.post(SIGN_IN_OPTIONS, {"new_proof": PROOF})
    assert answer.status_code == 409
    assert words in answer.json()["detail"]
    assert words in client.get("/ui/sign-in/").content.decode()
    assert PasskeyChallenge.objects.count() == 0


def test_at_another_address_of_ours_it_says_where_they_work(settings: Any) -> None:
    settings.PUBLIC_URL = "https://signalbox.example.com:443"
    client = Client(headers={"Host": "localhost"})
    answer = client.post(SIGN_IN_OPTIONS, {"new_proof": PROOF})
    assert answer.json()["detail"] == (
        "Passkeys work only at https://signalbox.example.com. Open Signalbox there."
    )
