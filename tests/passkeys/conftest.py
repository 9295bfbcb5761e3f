"""People with passkeys, and their browsers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from coordinator.models import Passkey
from tests.passkeys.authenticator import Authenticator
from tests.people import PASSWORD, person
from tests.served import PROOF

SIGN_IN, SIGN_IN_OPTIONS = "/ui/sign-in/passkey/", "/ui/sign-in/passkey/options/"
CONFIRM_OPTIONS = "/ui/sign-in/again/passkey/"
ADD, ADD_OPTIONS = "/ui/account/passkeys/", "/ui/account/passkeys/options/"
CODES = "/ui/account/recovery-codes/"


@pytest.fixture(autouse=True)
def localhost(settings: Any) -> None:
    """Signalbox at an address where passkeys work."""
    settings.PUBLIC_URL, settings.OWN_HOST = "http://localhost", ""


class Browser:
    """A browser at that address: its cookies, the secret beside them, and an authenticator."""

    def __init__(self, secret: str = PROOF, host: str = "localhost", address: str = "127.0.0.1") -> None:
        self.secret = secret
        self.authenticator = Authenticator()
        self.client = Client(headers={"Host": host}, REMOTE_ADDR=address)

    def post(self, path: str, **fields: Any) -> HttpResponse:
        """Send a form as a page does."""
        return self.client.post(path, {"proof": self.secret} | fields)  # type: ignore[return-value]

    def sign_in_by_password(self, name: str) -> None:
        form = {"username": name, "password": PASSWORD, "new_proof": self.secret}
        assert self.client.post("/ui/sign-in/", form).status_code == 302

    def add_passkey(self, name: str = "Laptop") -> HttpResponse:
        """Press the button on the account page."""
        options = self.post(ADD_OPTIONS).json()
        return self.post(ADD, name=name, credential=json.dumps(self.authenticator.create(options)))

    def sign_in_options(self) -> dict[str, Any]:
        return dict(self.client.post(SIGN_IN_OPTIONS, {"new_proof": self.secret}).json())

    def sign_in(self, answer: dict[str, Any] | None = None, **fields: str) -> HttpResponse:
        """Press the button on the sign-in page, or send an answer that is there already."""
        answer = answer or self.authenticator.get(self.sign_in_options())
        form = {"credential": json.dumps(answer), "new_proof": self.secret}
        return self.client.post(SIGN_IN, form | fields)  # type: ignore[return-value]

    def confirmation(self) -> str:
        """Return the device's answer to a challenge for a confirmation."""
        options = self.client.post(CONFIRM_OPTIONS, {"new_proof": self.secret}).json()
        return json.dumps(self.authenticator.get(options))

    @property
    def signed_in_as(self) -> str:
        """Whose session it is; "" where nobody is signed in."""
        found = self.client.session.get("_auth_user_id")
        return User.objects.get(pk=found).username if found else ""


@pytest.fixture
def with_passkey(db: None) -> Callable[..., Browser]:
    """A function that makes a person with a passkey and returns their browser, signed in by password."""

    def make(role: str = "approver", name: str = "Laptop", secret: str = PROOF) -> Browser:
        person(role)
        browser = Browser(secret)
        browser.sign_in_by_password(role)
        assert browser.add_passkey(name).status_code == 302
        assert Passkey.objects.filter(name=name).exists()
        return browser

    return make
