from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

from coordinator.actions.people import setup
from coordinator.errors import Conflict, UnprocessableRequest
from coordinator.identity.roles import highest_role_of_user
from coordinator.models import AuditLog, SetupToken

NOW = datetime.now(UTC)
GOOD = "seven-green-lamps"
pytestmark = pytest.mark.django_db


def form(token: str, name: str = "ada", **changes: str) -> dict[str, str]:
    return {"token": token, "username": name, "password1": GOOD, "password2": GOOD} | changes


def test_the_link_makes_an_administrator_who_is_signed_in() -> None:
    client = Client()
    answer = client.post("/ui/setup/", form(setup.replace_setup_token(NOW)), follow=True)
    assert answer.redirect_chain == [("/ui/", 302)]
    user = User.objects.get()
    assert (user.username, highest_role_of_user(user), user.is_active) == ("ada", "admin", True)
    assert client.get("/admin/").status_code == 200


def test_only_the_tokens_hash_is_kept() -> None:
    token = setup.replace_setup_token(NOW)
    assert token not in SetupToken.objects.get().token_hash


def test_the_page_shows_its_form_only_for_a_good_token() -> None:
    good = Client().get("/ui/setup/", {"token": setup.replace_setup_token(NOW)})
    bad = Client().get("/ui/setup/", {"token": "guessed"})
    assert (good.status_code, bad.status_code) == (200, 409)
    assert "password1" in good.content.decode()
    assert "password1" not in bad.content.decode()


def test_where_passwords_are_off_no_link_makes_an_account_with_one(settings: Any) -> None:
    token = setup.replace_setup_token(NOW)
    settings.PASSWORD_SIGN_IN, settings.OIDC_NAME = False, "Acme"
    assert "Sign in with Acme" in Client().get("/ui/setup/", {"token": token}).content.decode()
    with pytest.raises(Conflict, match="Password sign-in is off"):
        setup.redeem_setup_token(token, "ada", GOOD, NOW)


def test_a_link_works_once() -> None:
    token = setup.replace_setup_token(NOW)
    setup.redeem_setup_token(token, "ada", GOOD, NOW)
    with pytest.raises(Conflict, match="already set up"):
        setup.redeem_setup_token(token, "eve", GOOD, NOW)
    assert User.objects.count() == 1


def test_a_used_link_stays_used_when_all_users_are_gone() -> None:
    token = setup.replace_setup_token(NOW)
    setup.redeem_setup_token(token, "ada", GOOD, NOW)
    User.objects.all().delete()
    with pytest.raises(Conflict, match="was already used"):
        setup.redeem_setup_token(token, "eve", GOOD, NOW)


def test_a_newer_link_replaces_the_older_one() -> None:
    old, new = setup.replace_setup_token(NOW), setup.replace_setup_token(NOW)
    assert setup.setup_token_problem_or_empty(old) == setup.SPENT
    with pytest.raises(Conflict):
        setup.redeem_setup_token(old, "eve", GOOD, NOW)
    assert setup.redeem_setup_token(new, "ada", GOOD, NOW).pk


def test_no_link_is_made_or_redeemed_once_somebody_is_there() -> None:
    token = setup.replace_setup_token(NOW)
    User.objects.create_user("first")
    with pytest.raises(Conflict):
        setup.replace_setup_token(NOW)
    with pytest.raises(Conflict):
        setup.redeem_setup_token(token, "eve", GOOD, NOW)
    assert Client().post("/ui/setup/", form(token, "eve")).status_code == 409
    assert not User.objects.filter(username="eve").exists()


@pytest.mark.parametrize(
    "changes",
    [{"password2": "other"}, {"password1": "12345678", "password2": "12345678"}, {"username": "a b"}],
)
def test_a_bad_name_or_password_is_explained_and_the_link_stays_good(changes: dict[str, str]) -> None:
    token = setup.replace_setup_token(NOW)
    answer = Client().post("/ui/setup/", form(token, **changes))
    assert answer.status_code == 422
    assert "errorlist" in answer.content.decode()
    assert not setup.setup_token_problem_or_empty(token)


def test_the_action_holds_the_password_rules_itself() -> None:
    token = setup.replace_setup_token(NOW)
    with pytest.raises(UnprocessableRequest, match="too short"):
        setup.redeem_setup_token(token, "ada", "x7!", NOW)
    assert not setup.setup_token_problem_or_empty(token)


def test_the_set_up_is_audited_without_secrets() -> None:
    token = setup.replace_setup_token(NOW)
    setup.redeem_setup_token(token, "ada", GOOD, NOW)
    row = AuditLog.objects.get(event_type="FIRST_ADMIN_CREATED")
    assert (row.actor_id, row.target_id, row.result) == ("user:ada", "ada", "success")
    assert token not in str(vars(row))
    assert GOOD not in str(vars(row))


def test_a_form_from_elsewhere_is_refused() -> None:
    token = setup.replace_setup_token(NOW)
    assert Client(enforce_csrf_checks=True).post("/ui/setup/", form(token)).status_code == 403
    assert not setup.setup_token_problem_or_empty(token)


@pytest.mark.django_db(transaction=True)
def test_of_two_people_at_once_one_becomes_the_administrator() -> None:
    token, together = setup.replace_setup_token(NOW), Barrier(2)

    def redeem(name: str) -> str:
        try:
            together.wait()
            return setup.redeem_setup_token(token, name, GOOD, NOW).username
        except Conflict:
            return "refused"
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(redeem, ["ada", "eve"]))
    assert results.count("refused") == 1
    assert [user.username for user in User.objects.all()] == [name for name in results if name != "refused"]
