"""Every page and every form of the admin: the cookie of a session alone changes nothing there."""

from __future__ import annotations

import logging

import pytest
from django.test import Client

from tests.guards import callers
from tests.guards.table import PAGES
from tests.guards.test_every_url import ask, every_route, path_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unrendered")]
# They lead in, end the session or keep a colour: `allow_post_without_browser_proof` of
# dashboard.frame.browser_proof_middleware.
OPEN = {"accounts:login", "accounts:setup", "accounts:logout", "accounts:theme"}
# They end where the provider of single sign-on says who it is, and only in the browser that set out.
OPEN |= {"accounts:provider-start", "accounts:provider-again", "accounts:provider-back"}
# A passkey's challenge changes nothing, and what it is for is proven by the passkey.
OPEN |= {"accounts:passkey-sign-in", "accounts:passkey-sign-in-options", "accounts:passkey-confirm-options"}
# Whoever holds an invitation is nobody yet.
OPEN |= {"people:join", "people:join-passkey", "people:join-passkey-options"}
# They only read, in pieces, what a cookie may read: what is on trial comes in a form.
OPEN |= {"rules:trial", "rules:calls", "rules:suggestions"}


@pytest.fixture
def thief(monkeypatch: pytest.MonkeyPatch) -> Client:
    """A program with the cookie of an administrator's session."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    client = callers.browser(callers.people()["superuser"])
    del client.defaults["HTTP_X_SIGNALBOX_PROOF"]
    return client


def test_no_page_takes_a_cookie_for_a_person(thief: Client) -> None:
    routes = {name: route for name, route in every_route() if PAGES.get(name) and name != "home"}
    open_ones = set()
    for name, route in routes.items():
        answers = [ask(thief, method, path_of(route)) for method in ("POST", "PUT", "PATCH", "DELETE")]
        if any(answer.headers.get("Signalbox-Confirm") != "password" for answer in answers):
            open_ones.add(name)
        if name == "accounts:logout":
            thief.force_login(callers.User.objects.get(username="superuser"))
            del thief.defaults["HTTP_X_SIGNALBOX_PROOF"]
    assert open_ones == OPEN


def test_no_form_of_the_admin_takes_a_cookie_for_a_person(thief: Client) -> None:
    routes = {
        name: route for name, route in every_route() if name.startswith("admin:") and "(?P" not in route
    }
    answers = {name: ask(thief, "POST", path_of(route)) for name, route in routes.items()}
    assert len(answers) > 100
    assert {
        name for name, answer in answers.items() if answer.headers.get("Signalbox-Confirm") is None
    } == set()
