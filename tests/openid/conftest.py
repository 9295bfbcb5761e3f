"""A provider, and people who go there and come back."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from coordinator.identity.openid import provider as known
from tests.openid.provider import CLIENT, SECRET, Provider
from tests.served import PROOF

ROLES = {"ops": "approver", "bosses": "admin", "everyone": "viewer"}
START, BACK, AGAIN = "/ui/sign-in/provider/", "/ui/sign-in/provider/back/", "/ui/sign-in/provider/again/"
CONNECT = "/ui/account/provider/"


@pytest.fixture(scope="session")
def running_provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.stop()


@pytest.fixture
def provider(running_provider: Provider, settings: Any) -> Provider:
    """A provider that does nothing wrong yet, and Signalbox set up for it."""
    settings.OIDC_ISSUER, settings.OIDC_NAME = running_provider.issuer, "Acme"
    settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT, SECRET
    settings.OIDC_ROLES = ROLES
    known.clear_provider_cache()
    return running_provider.well()


@pytest.fixture
def visitor(provider: Provider, db: None) -> Visitor:
    """Somebody's browser, in which nobody is signed in; there is an administrator."""
    User.objects.create_superuser("root")
    return Visitor(provider)


class Visitor:
    """A browser: its cookies, and the secret beside them."""

    def __init__(self, provider: Provider, secret: str = PROOF) -> None:
        self.provider, self.secret = provider, secret
        self.client = Client(headers={"X-Signalbox-Proof": secret})

    def set_out(self, to: str = START, **fields: str) -> str:
        """Press the button; return where the page leads, or "" where it does not."""
        answer = self.client.post(to, {"new_proof": self.secret, "next": "/ui/approvals/"} | fields)
        found = re.search(r'http-equiv="refresh" content="0; url=([^"]*)"', answer.content.decode())
        return html.unescape(found[1]) if found else ""

    def come_back(self, brought: dict[str, str], secret: str | None = None) -> HttpResponse:
        """Open the address that the provider leads to, and send its form."""
        page = self.client.get(BACK, brought)
        assert page.status_code == 200
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.content.decode()))
        fields |= {"new_proof": self.secret if secret is None else secret}
        return self.client.post(BACK, fields)  # type: ignore[return-value]

    def sign_in(self, to: str = START) -> HttpResponse:
        """Go to the provider and come back."""
        return self.come_back(self.provider.authorize(self.set_out(to)))
