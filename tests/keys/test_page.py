from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.errors import Unauthorized
from coordinator.models import ApiKey, AuditLog
from tests.people import signed_in

pytestmark = pytest.mark.django_db

URL = "/ui/keys/"


def make(client: Client, **form: object) -> str:
    """Create a key on the page and return it."""
    answer = client.post(URL, {"name": "ci", "scopes": ["runner"], **form})
    assert answer.status_code == 200
    return re.search(r'id="new-key"[^>]*>(sbx_[^<]+)<', answer.content.decode())[1]  # type: ignore[index]


@pytest.mark.parametrize("name", ["viewer", "approver"])
def test_keys_are_for_admins(name: str) -> None:
    client = signed_in(name)
    assert client.get(URL).status_code == 403
    assert client.post(URL, {"name": "ci", "scopes": ["runner"]}).status_code == 403
    assert not ApiKey.objects.exists()


def test_a_new_key_is_shown_once() -> None:
    client = signed_in("admin")
    raw = make(client, expires="30")
    assert keys.authenticate_api_key(raw, timezone.now()).scopes == {"runner"}
    again = client.get(URL)
    assert raw not in again.content.decode()
    assert "ci" in again.content.decode()
    assert "no-store" in again.headers["Cache-Control"]
    assert AuditLog.objects.get(event_type="API_KEY_CREATED").actor_id == "user:admin"


def test_what_is_wrong_is_said_on_the_form() -> None:
    client = signed_in("admin")
    make(client)
    twice = client.post(URL, {"name": "ci", "scopes": ["read"]})
    assert twice.status_code == 422
    assert "already exists" in twice.content.decode()
    assert client.post(URL, {"name": "x"}).status_code == 422


def test_a_revoked_key_is_refused_and_stays_on_the_list() -> None:
    client = signed_in("admin")
    raw = make(client)
    answer = client.post(f"{URL}{ApiKey.objects.get().id}/revoke/", follow=True)
    assert "is revoked" in answer.content.decode()
    with pytest.raises(Unauthorized):
        keys.authenticate_api_key(raw, timezone.now())
    assert (
        "already revoked"
        in client.post(f"{URL}{ApiKey.objects.get().id}/revoke/", follow=True).content.decode()
    )
