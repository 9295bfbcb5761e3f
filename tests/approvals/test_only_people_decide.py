"""No API key decides anything, whichever way it is tried; a person's click cannot be forged or counted twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from coordinator.actions import approvals
from coordinator.api import permission_requests
from coordinator.identity.scopes import SCOPES
from coordinator.models import AuditLog
from coordinator.policy.requests.approvals import Scope, Validity
from tests.approvals.cards import form_for
from tests.approvals.factories import NOW, asked, fresh, person, trail
from tests.served import PROOF

pytestmark = pytest.mark.django_db
Call = Callable[..., HttpResponse]

API = "/api/permission-requests"
DECIDE = "/ui/approvals/decide/"
VERDICT = {"verdict": "approved", "status": "approved", "approved_by": "alice", "approve": True}
METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
OVERRIDES = ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override")


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("method", METHODS)
def test_no_key_decides_at_the_api(call: Call, scope: str, method: str) -> None:
    row = asked()
    for path in (
        f"{API}/{row.request_id}",
        f"{API}/{row.request_id}/decide",
        f"{API}/{row.request_id}/approve",
    ):
        call(method, f"{path}?verdict=approved&_method=PUT", VERDICT, scope=scope)
    assert fresh(row).status in {"pending", "withdrawn"}
    assert fresh(row).approved_by is None


@pytest.mark.parametrize("override", OVERRIDES)
def test_no_header_turns_one_method_into_another(call: Call, override: str) -> None:
    row = asked()
    for wanted in ("PUT", "PATCH", "POST", "DELETE"):
        call("post", f"{API}/{row.request_id}", VERDICT, scope="operator", **{override: wanted})
        call("get", f"{API}/{row.request_id}", scope="operator", **{override: wanted})
    assert fresh(row).status == "pending"


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
def test_a_key_does_not_open_the_pages_that_decide(call: Call, scope: str, header: str) -> None:
    row = asked()
    approved = approvals.decide_request(
        asked(target_resource="b").request_id,
        person=person(),
        verdict="approved",
        validity=Validity.UNTIL_REVOKED,
        scope=Scope.EVERYWHERE,
        now=NOW,
    )
    call("get", API, scope=scope)  # makes the key
    form = form_for(row)
    answers = [
        call("post", DECIDE, form, scope=scope),
        call("post", f"/ui/approvals/{approved.request_id}/revoke/", {}, scope=scope),
    ]
    assert [answer.status_code for answer in answers] == [302, 302]
    assert all("/ui/sign-in/" in answer["Location"] for answer in answers)
    assert fresh(row).status == "pending"
    assert fresh(approved).context.revoked_at is None


def every_pattern(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        path = f"{prefix}{pattern.pattern}"
        if isinstance(pattern, URLResolver):
            yield from every_pattern(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern):
            yield path, pattern.callback


def test_no_operation_of_the_api_reaches_the_deciding_actions() -> None:
    paths = [path for path, _ in every_pattern(get_resolver().url_patterns) if path.startswith("api/")]
    assert any("permission-requests" in path for path in paths)
    assert not [path for path in paths if "decide" in path or "approve" in path or "revoke" in path]
    source = Path(permission_requests.__file__).read_text()
    assert "approvals.decide" not in source
    assert "approvals.revoke" not in source


@pytest.mark.parametrize("method", ["get", "head", "options", "put", "patch", "delete", "trace"])
def test_only_post_decides(signed_in, method: str) -> None:
    row, browser = asked(), signed_in()
    answer = getattr(browser, method)(f"{DECIDE}?ids={row.request_id}&verdict=approved")
    assert answer.status_code == (302 if method == "get" else 405)  # to the page with the form
    assert fresh(row).status == "pending"


def test_a_click_without_the_pages_token_decides_nothing(signed_in) -> None:
    row, browser = asked(), signed_in(enforce_csrf_checks=True)
    form = form_for(row)
    assert browser.post(DECIDE, form).status_code == 403
    assert browser.post(DECIDE, form | {"csrfmiddlewaretoken": "x" * 64}).status_code == 403
    assert fresh(row).status == "pending"


def test_another_sites_form_decides_nothing_even_with_the_token(signed_in) -> None:
    row, browser = asked(), signed_in(enforce_csrf_checks=True)
    browser.get("/ui/approvals/")
    token = browser.cookies["signalbox_csrf"].value
    form = form_for(row, csrfmiddlewaretoken=token)
    assert browser.post(DECIDE, form, headers={"Origin": "https://evil.example"}).status_code == 403
    assert fresh(row).status == "pending"
    assert browser.post(DECIDE, form, headers={"Origin": "http://testserver"}).status_code == 302
    assert fresh(row).status == "approved"


def test_a_session_planted_before_signing_in_is_not_signed_in_after() -> None:
    user, row = person(), asked()
    planted = Client()
    planted.get("/ui/sign-in/")
    session = planted.session
    session["planted"] = "1"
    session.save()
    victim = Client()
    victim.cookies["signalbox_session"] = session.session_key
    form = {"username": user.username, "password": "secret-words-7", "new_proof": PROOF}
    assert victim.post("/ui/sign-in/", form).status_code == 302
    victim.defaults["HTTP_X_SIGNALBOX_PROOF"] = PROOF
    attacker = Client()
    attacker.cookies["signalbox_session"] = session.session_key
    answer = attacker.post(DECIDE, form_for(row))
    assert "/ui/sign-in/" in answer["Location"]
    assert fresh(row).status == "pending"
    assert victim.post(DECIDE, form_for(row)).status_code == 302
    assert fresh(row).status == "approved"


def test_the_session_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites(settings) -> None:
    user, browser = person(), Client()
    browser.post("/ui/sign-in/", {"username": user.username, "password": "secret-words-7"})
    cookie = browser.cookies["signalbox_session"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"


def test_a_form_sent_twice_decides_once(signed_in) -> None:
    row, browser = asked(), signed_in()
    form = form_for(row, row, scope="everywhere", validity="1h")
    browser.post(DECIDE, form)
    first = fresh(row)
    browser.post(DECIDE, form | {"validity": "7d"})
    assert fresh(row).expires_at == first.expires_at
    assert trail(row).count("PERMISSION_REQUEST_APPROVED") == 1


def test_a_viewer_is_refused_and_the_card_has_no_effect(signed_in) -> None:
    row, browser = asked(), signed_in("eve", "viewer")
    assert browser.post(DECIDE, form_for(row)).status_code == 403
    assert fresh(row).status == "pending"


def test_somebody_who_lost_the_role_is_refused_at_once(signed_in) -> None:
    row, browser = asked(), signed_in("carol")
    User.objects.get(username="carol").groups.clear()
    assert browser.post(DECIDE, form_for(row)).status_code == 403
    assert fresh(row).status == "pending"


def test_switching_keys_off_opens_no_decision(settings) -> None:
    settings.API_AUTH = False
    row, nobody = asked(), Client(headers={"Host": "127.0.0.1"})
    nobody.post(DECIDE, form_for(row))
    for method in METHODS:
        getattr(nobody, method)(f"{API}/{row.request_id}", VERDICT, content_type="application/json")
    assert fresh(row).approved_by is None
    assert not AuditLog.objects.filter(event_type="PERMISSION_REQUEST_APPROVED").exists()
