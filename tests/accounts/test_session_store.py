"""Sessions are kept under a hash of their keys."""

from __future__ import annotations

import pytest
from django.contrib.sessions.models import Session
from django.core import signing
from django.db import OperationalError
from django.test import Client

from tests.people import signed_in

pytestmark = pytest.mark.django_db


def with_cookie(value: str) -> Client:
    client = Client()
    client.cookies["signalbox_session"] = value
    return client


def test_what_the_table_holds_is_no_cookie() -> None:
    client = signed_in("admin")
    cookie, row = client.cookies["signalbox_session"].value, Session.objects.get()
    assert cookie not in (row.session_key, row.session_data)
    assert with_cookie(row.session_key).get("/ui/").status_code == 302
    assert with_cookie(cookie).get("/ui/").status_code == 200


def test_the_secret_key_alone_makes_no_session() -> None:
    client = signed_in("admin")
    inside = dict(client.session.items())
    forged = (
        signing.dumps(inside, salt="django.contrib.sessions.SessionStore"),
        signing.dumps(inside, salt="django.contrib.sessions.backends.signed_cookies", compress=True),
        client.session.encode(inside),
    )
    for value in forged:
        assert with_cookie(value).get("/ui/").status_code == 302


def test_a_message_that_the_secret_key_signed_is_not_shown() -> None:
    client = signed_in("viewer")
    forged = signing.get_cookie_signer(salt="django.contrib.messages").sign_object(
        [["__json_message", 1, 25, "<b>planted</b>"]]
    )
    client.cookies["messages"] = forged
    assert "planted" not in client.get("/ui/account/").text


def test_signing_out_takes_the_session_out_of_the_table() -> None:
    client = signed_in("viewer")
    before = Session.objects.get().session_key
    client.post("/ui/sign-out/")
    assert not Session.objects.filter(session_key=before).exists()


def test_a_cookie_that_was_made_up_opens_nothing_and_is_not_taken_over() -> None:
    client = with_cookie("planted0planted0planted0planted0")
    client.post("/ui/sign-out/")  # leaves a message, and so makes a session
    assert client.cookies["signalbox_session"].value != "planted0planted0planted0planted0"


def test_a_busy_database_is_told_as_such_and_not_as_a_session_that_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = signed_in("viewer").session

    def busy(*_: object, **__: object) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(Session, "save", busy)
    session["seen"] = True
    with pytest.raises(OperationalError, match="locked"):
        session.save()
