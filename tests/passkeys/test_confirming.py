"""Confirming that it is you: what needs it, by what it is given, and that the form goes on afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.urls import get_resolver, reverse
from django.utils import timezone

from coordinator.identity import browser_secrets
from coordinator.models import ApiKey, AuditLog, Brake, Passkey
from dashboard.frame import confirmations
from dashboard.frame.sign_in_ways import BY_PROVIDER
from tests.passkeys.conftest import CODES, Browser
from tests.passkeys.test_own_account import signed_in
from tests.people import PASSWORD, person

pytestmark = pytest.mark.django_db
Make = Callable[..., Browser]
CHANGE = "/ui/keys/"
FORM = {"name": "the person's own words", "scopes": "read"}
LATER = timedelta(minutes=5, seconds=1)


@pytest.fixture(autouse=True)
def decisions_need_it(settings: Any) -> None:
    settings.CONFIRM_DECISIONS_WITHIN = 300


def keys_made() -> int:
    return ApiKey.objects.filter(name=FORM["name"]).count()


def later() -> Any:
    return time_machine.travel(timezone.now() + LATER)


def test_a_decision_soon_after_the_sign_in_is_asked_nothing() -> None:
    browser = signed_in("admin")
    assert browser.post(CHANGE, **FORM).headers.get("Signalbox-Confirm") is None


def test_a_decision_later_waits_for_a_confirmation_and_goes_on_with_what_was_typed() -> None:
    browser = signed_in("admin")
    with later():
        page = browser.post(CHANGE, **FORM)
        assert (page.status_code, page.headers["Signalbox-Confirm"]) == (403, "password")
        assert "the person&#x27;s own words" in page.content.decode()
        assert keys_made() == 0
        form = FORM | {"confirm_password": PASSWORD, "new_proof": browser.secret}
        assert browser.client.post(CHANGE, form).headers.get("Signalbox-Confirm") is None
        assert keys_made() == 1
        # From then on nothing is asked for a while.
        assert browser.post(CHANGE, name="two", scopes="read").headers.get("Signalbox-Confirm") is None


def test_nothing_is_asked_where_the_setting_is_off(settings: Any) -> None:
    settings.CONFIRM_DECISIONS_WITHIN = 0
    browser = signed_in("admin")
    with later():
        assert browser.post(CHANGE, **FORM).headers.get("Signalbox-Confirm") is None


def test_who_has_a_passkey_confirms_with_it_and_not_with_the_password(with_passkey: Make) -> None:
    browser = with_passkey("admin")
    # They signed in by password: that is no confirmation of theirs.
    page = browser.post(CHANGE, **FORM)
    assert (page.status_code, page.headers["Signalbox-Confirm"]) == (403, "passkey recovery")
    refused = browser.post(CHANGE, **FORM, confirm_password=PASSWORD, new_proof=browser.secret)
    assert refused.status_code == 403
    assert keys_made() == 0
    form = FORM | {"confirm_passkey": browser.confirmation(), "new_proof": browser.secret}
    assert browser.client.post(CHANGE, form).headers.get("Signalbox-Confirm") is None
    assert keys_made() == 1
    row = AuditLog.objects.filter(event_type="SIGN_IN_CONFIRMED").latest("id")
    assert (row.actor_id, row.metadata["by"]) == ("user:admin", "passkey")
    assert browser.client.session[browser_secrets.PROOF_SESSION_KEY]["by"] == "passkey"


def test_a_lost_proof_does_not_let_the_password_in(with_passkey: Make) -> None:
    """Without the browser's secret the way in is the same: the passkey, where there is one."""
    browser = with_passkey("admin")
    page = browser.client.post(CHANGE, FORM | {"confirm_password": PASSWORD})
    assert (page.status_code, page.headers["Signalbox-Confirm"]) == (403, "passkey recovery")


def test_a_recovery_code_confirms_in_place_of_a_passkey(with_passkey: Make) -> None:
    browser = with_passkey("admin")
    form = {"confirm_passkey": browser.confirmation(), "new_proof": browser.secret}
    page = browser.client.post(CODES, form).content.decode()
    code = page.partition('id="codes"')[2].partition(">")[2].split()[0]
    with later():
        form = FORM | {"confirm_password": code, "new_proof": browser.secret}
        assert browser.client.post(CHANGE, form).headers.get("Signalbox-Confirm") is None
        assert browser.client.session[browser_secrets.PROOF_SESSION_KEY]["by"] == "recovery code"


def test_somebody_elses_passkey_confirms_nothing(with_passkey: Make) -> None:
    browser = with_passkey("admin")
    person("viewer")
    other = Browser()
    other.sign_in_by_password("viewer")
    other.add_passkey("Other")
    options = browser.client.post("/ui/sign-in/again/passkey/", {"new_proof": browser.secret}).json()
    assert len(options["allowCredentials"]) == 1
    form = FORM | {
        "confirm_passkey": json.dumps(other.authenticator.get(options)),
        "new_proof": browser.secret,
    }
    answer = browser.client.post(CHANGE, form)
    assert answer.status_code == 403
    assert "none of your passkeys" in answer.content.decode()


def test_the_challenge_of_another_person_confirms_nothing(with_passkey: Make) -> None:
    browser = with_passkey("admin")
    person("viewer")
    other = Browser()
    other.sign_in_by_password("viewer")
    other.add_passkey("Other")
    options = other.client.post("/ui/sign-in/again/passkey/", {"new_proof": browser.secret}).json()
    form = {"confirm_passkey": json.dumps(browser.authenticator.get(options)), "new_proof": browser.secret}
    assert browser.client.post(CHANGE, FORM | form).status_code == 403


def test_a_sign_in_challenge_confirms_nothing(with_passkey: Make) -> None:
    browser = with_passkey("admin")
    answer = json.dumps(browser.authenticator.get(browser.sign_in_options()))
    form = {"confirm_passkey": answer, "new_proof": browser.secret}
    assert browser.client.post(CHANGE, FORM | form).status_code == 403


def test_a_passkey_that_signed_in_has_confirmed(with_passkey: Make) -> None:
    browser = with_passkey("admin")
    browser.post("/ui/sign-out/")
    browser.sign_in()
    assert browser.post(CHANGE, **FORM).headers.get("Signalbox-Confirm") is None
    with later():
        assert browser.post(CHANGE, **FORM).status_code == 403


def test_passkeys_of_an_earlier_host_leave_the_password(with_passkey: Make) -> None:
    """They work nowhere any more; nobody could decide otherwise."""
    browser = with_passkey("admin")
    Passkey.objects.update(rp_id="old.example")
    assert browser.post(CHANGE, **FORM).headers.get("Signalbox-Confirm") is None
    with later():
        assert browser.post(CHANGE, **FORM).headers["Signalbox-Confirm"] == "password"


def test_who_signs_in_elsewhere_confirms_there_or_by_passkey(settings: Any) -> None:
    settings.OIDC_ISSUER, settings.OIDC_NAME = "https://i", "Acme"
    browser = signed_in("admin")
    session = browser.client.session
    session[BY_PROVIDER] = ""
    session[browser_secrets.PROOF_SESSION_KEY] |= {"by": "provider session"}
    session.save()
    page = browser.post(CHANGE, **FORM)
    assert (page.status_code, page.headers["Signalbox-Confirm"]) == (403, "provider")
    assert browser.post(CHANGE, **FORM, confirm_password=PASSWORD).status_code == 403
    session[browser_secrets.PROOF_SESSION_KEY] |= {"by": "provider"}
    session.save()
    assert browser.post(CHANGE, **FORM).headers.get("Signalbox-Confirm") is None
    assert browser.add_passkey().status_code == 302
    with later():
        page = browser.post(CHANGE, **FORM)
        assert page.headers["Signalbox-Confirm"] == "passkey provider"
        form = FORM | {"confirm_passkey": browser.confirmation(), "new_proof": browser.secret}
        assert browser.client.post(CHANGE, form).headers.get("Signalbox-Confirm") is None


def test_a_session_from_before_counts_as_unconfirmed() -> None:
    browser = signed_in("admin")
    session = browser.client.session
    held = dict(session[browser_secrets.PROOF_SESSION_KEY])
    del held["by"]
    session[browser_secrets.PROOF_SESSION_KEY] = held
    session.save()
    assert browser.post(CHANGE, **FORM).status_code == 403


def test_admin_pages_need_it() -> None:
    browser = signed_in("admin")
    User.objects.filter(username="admin").update(is_staff=True, is_superuser=True)
    with later():
        answer = browser.post("/admin/auth/user/add/", username="x")
        assert answer.headers["Signalbox-Confirm"] == "password"


def test_a_brake_is_put_on_at_once_and_released_with_a_confirmation() -> None:
    browser = signed_in("approver")
    with later():
        browser.post(reverse("brakes:put-on"), reach="everything", name="", is_meant="on", reason="stop")
        brake = Brake.objects.get()
        answer = browser.post(reverse("brakes:release", args=[brake.pk]))
        assert answer.headers["Signalbox-Confirm"] == "password"
        assert Brake.objects.get().released_at is None


def views_by_name(resolver: Any, space: str = "") -> dict[str, Any]:
    """Return the view of each URL name, as pages spell it."""
    found: dict[str, Any] = {}
    for one in resolver.url_patterns:
        if hasattr(one, "url_patterns"):
            found |= views_by_name(one, one.namespace or space)
        elif one.name:
            found[f"{space}:{one.name}" if space else one.name] = one.callback
    return found


def test_every_verb_of_approvers_and_admins_waits_unless_it_is_exempt() -> None:
    """A new page is asked about without anybody having thought of it."""
    views = views_by_name(get_resolver())
    assert views.keys() >= confirmations.EXEMPT | confirmations.ACCOUNT_CHANGES
    deciding = {
        name for name, view in views.items() if getattr(view, "needed_role", "") in {"approver", "admin"}
    }
    assert len(deciding) > 80
    waits = {
        name
        for name in views
        if confirmations.required_confirmation_age_or_none(
            SimpleNamespace(path="/ui/", resolver_match=SimpleNamespace(view_name=name)),  # type: ignore[arg-type]
            views[name],
        )
    }
    assert waits == deciding - confirmations.EXEMPT | confirmations.ACCOUNT_CHANGES
    assert waits >= {"approvals:decide", "approvals:decide-set", "rules:save", "mcp:save", "brakes:release"}


def test_without_a_script_the_password_does_with_each_decision() -> None:
    person("admin")
    browser = Browser()
    browser.client.post("/ui/sign-in/", {"username": "admin", "password": PASSWORD})
    page = browser.client.post(CHANGE, FORM)
    assert "Password of admin" in page.content.decode()
    browser.client.post(CHANGE, FORM | {"confirm_password": PASSWORD})
    assert keys_made() == 1


def test_without_a_script_the_page_says_why_a_passkey_needs_one(with_passkey: Make) -> None:
    page = with_passkey("admin").post(CHANGE, **FORM).content.decode()
    assert "Passkeys need JavaScript" in page
    assert "Recovery code" in page


def test_a_refused_passkey_is_counted_and_slowed(with_passkey: Make) -> None:
    browser = with_passkey("admin")
    browser.client.cookies.pop("signalbox_device", None)
    with time_machine.travel(timezone.now(), tick=False):
        for _ in range(300):
            form = {"confirm_passkey": "{}", "new_proof": browser.secret}
            assert browser.client.post(CHANGE, form).status_code == 403
        form["confirm_passkey"] = browser.confirmation()
        assert browser.client.post(CHANGE, form).status_code == 429
