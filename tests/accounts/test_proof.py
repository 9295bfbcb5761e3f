"""What a session's cookie alone does: it reads. All that changes anything takes the browser's proof or the password."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from coordinator.actions.people import setup
from coordinator.identity import browser_secrets
from coordinator.models import AuditLog, SetupToken
from dashboard.accounts.key_views import ApiKeyForm
from tests.people import PASSWORD, person, signed_in
from tests.served import PROOF

pytestmark = pytest.mark.django_db
CHANGE = "/ui/keys/"
NEW = "eleven-quiet-signals"
FORM = {"name": "ci", "scopes": "read"}


def keys_made() -> int:
    return AuditLog.objects.filter(event_type="API_KEY_CREATED").count()


def thief_of(client: Client) -> Client:
    """Return a client that has all cookies of another, and nothing else."""
    thief = Client()
    thief.cookies = client.cookies
    return thief


def test_a_stolen_cookie_reads_and_changes_nothing() -> None:
    thief = thief_of(signed_in("admin"))
    assert thief.get("/ui/keys/").status_code == 200
    answer = thief.post(CHANGE, FORM)
    assert (answer.status_code, answer.headers["Signalbox-Confirm"]) == (403, "password")
    assert keys_made() == 0


@pytest.mark.parametrize("proof", ["", "0" * 64, PROOF[:-1], PROOF.upper(), "é"])
def test_another_proof_is_none(proof: str) -> None:
    thief = thief_of(signed_in("admin"))
    assert thief.post(CHANGE, FORM | {"proof": proof}).status_code == 403
    assert keys_made() == 0


@pytest.mark.parametrize("way", ["header", "field"])
def test_the_proof_opens_as_header_and_as_field(way: str) -> None:
    client = thief_of(signed_in("admin"))
    more = {"headers": {browser_secrets.HEADER: PROOF}} if way == "header" else {}
    answer = client.post(CHANGE, FORM | ({"proof": PROOF} if way == "field" else {}), **more)
    assert (answer.status_code, keys_made()) == (200, 1)


def test_signing_in_ties_the_session_to_the_browser() -> None:
    person("admin")
    client = Client()
    client.post("/ui/sign-in/", {"username": "admin", "password": PASSWORD, "new_proof": PROOF})
    assert client.post(CHANGE, FORM).status_code == 403
    assert client.post(CHANGE, FORM | {"proof": PROOF}).status_code == 200


def test_no_page_tells_the_proof_nor_its_hash() -> None:
    client = signed_in("admin")
    held = client.session[browser_secrets.PROOF_SESSION_KEY]["hash"]
    for place in ("/ui/", "/ui/account/", "/ui/keys/", "/admin/"):
        assert PROOF not in client.get(place).text
        assert held not in client.get(place).text


def test_who_signed_in_without_a_script_gives_the_password_with_each_change() -> None:
    person("admin")
    client = Client()
    client.post("/ui/sign-in/", {"username": "admin", "password": PASSWORD})
    asked = client.post(CHANGE, FORM)
    assert asked.status_code == 403
    assert '<input type="hidden" name="name" value="ci">' in asked.text
    assert client.post(CHANGE, FORM | {"confirm_password": PASSWORD}).status_code == 200
    assert client.post(CHANGE, FORM | {"name": "two"}).status_code == 403
    assert keys_made() == 1


def test_a_wrong_password_changes_nothing_and_is_counted() -> None:
    thief = thief_of(signed_in("admin"))
    for _ in range(20):
        assert thief.post(CHANGE, FORM | {"confirm_password": "guess"}).status_code == 403
    answer = thief.post(CHANGE, FORM | {"confirm_password": PASSWORD})
    assert (answer.status_code, keys_made()) == (429, 0)
    assert int(answer.headers["Retry-After"]) > 0


def test_the_password_ties_the_session_to_a_browser_that_lost_its_proof() -> None:
    client = thief_of(signed_in("admin"))
    new = "ab" * 32
    answer = client.post(
        "/ui/sign-in/again/",
        {"confirm_password": PASSWORD, "new_proof": new},
        headers={"HX-Request": "true"},
    )
    assert answer.status_code == 204
    assert client.post(CHANGE, FORM | {"proof": new}).status_code == 200
    assert client.post(CHANGE, FORM | {"proof": PROOF}).status_code == 403


def test_an_old_sign_in_is_asked_for_the_password_again(settings) -> None:
    client, later = signed_in("admin"), timezone.now() + timedelta(seconds=settings.SIGN_IN_GOOD_FOR + 1)
    with time_machine.travel(later):
        assert "some time ago" in client.post(CHANGE, FORM).text
        assert (
            client.post(CHANGE, FORM | {"confirm_password": PASSWORD, "new_proof": PROOF}).status_code == 200
        )
        assert client.post(CHANGE, FORM | {"name": "two"}).status_code == 200


def test_a_script_is_told_in_its_own_words() -> None:
    answer = thief_of(signed_in("admin")).post(CHANGE, FORM, headers={"HX-Request": "true"})
    assert answer.headers["Content-Type"] == "application/json"
    assert "password" in answer.json()["detail"]


def test_the_tries_without_proof_are_audited_but_not_without_end() -> None:
    thief = thief_of(signed_in("admin"))
    for _ in range(25):
        thief.post(CHANGE, FORM)
    rows = AuditLog.objects.filter(event_type="SIGN_IN_UNPROVEN")
    assert rows.count() == 20
    assert rows[0].target_id == "admin"


def test_the_password_given_to_go_on_reaches_no_view(monkeypatch) -> None:
    seen: set[str] = set()
    monkeypatch.setattr(ApiKeyForm, "clean", lambda form: seen.update(form.data))
    signed_in("admin").post(CHANGE, FORM | {"confirm_password": "x", "new_proof": "y", "proof": PROOF})
    assert seen == {"name", "scopes"}


def test_whoever_holds_the_cookie_may_end_the_session() -> None:
    client = signed_in("viewer")
    assert thief_of(client).post("/ui/sign-out/").status_code == 302
    assert client.get("/ui/").status_code == 302


def test_two_browsers_of_one_person_each_have_their_own_proof() -> None:
    person("admin")
    here, there = Client(), Client()
    for client, proof in ((here, "1" * 64), (there, "2" * 64)):
        form = {"username": "admin", "password": PASSWORD, "new_proof": proof}
        assert client.post("/ui/sign-in/", form).status_code == 302
    assert here.post(CHANGE, FORM | {"proof": "2" * 64}).status_code == 403
    assert here.post(CHANGE, FORM | {"proof": "1" * 64}).status_code == 200
    assert there.post(CHANGE, FORM | {"name": "two", "proof": "2" * 64}).status_code == 200


def test_the_set_up_link_ties_the_first_session_to_its_browser() -> None:
    client = Client()
    form = {"username": "root", "password1": NEW, "password2": NEW, "new_proof": PROOF}
    token = setup.replace_setup_token(timezone.now())
    assert client.post("/ui/setup/", form | {"token": token}).status_code == 302
    assert client.post(CHANGE, FORM).status_code == 403
    assert client.post(CHANGE, FORM | {"proof": PROOF}).status_code == 200


def test_the_set_up_token_is_stored_hashed() -> None:
    token = setup.replace_setup_token(timezone.now())
    assert token not in str(list(SetupToken.objects.values()))
    stored = SetupToken.objects.get().token_hash
    assert setup.setup_token_problem_or_empty(stored) == setup.SPENT


def test_a_form_of_the_admin_goes_on_with_the_password() -> None:
    client, user = thief_of(signed_in("admin")), person("viewer")
    place = f"/admin/auth/user/{user.pk}/delete/"
    assert '<input type="hidden" name="post" value="yes">' in client.post(place, {"post": "yes"}).text
    assert client.post(place, {"post": "yes", "confirm_password": PASSWORD}).status_code == 302
    assert not User.objects.filter(pk=user.pk).exists()


def test_the_admin_saves_nothing_for_a_cookie_alone() -> None:
    client, user = signed_in("admin"), person("viewer")
    place = f"/admin/auth/user/{user.pk}/delete/"
    assert thief_of(client).post(place, {"post": "yes"}).status_code == 403
    assert User.objects.filter(pk=user.pk).exists()
    assert client.post(place, {"post": "yes"}).status_code == 302
