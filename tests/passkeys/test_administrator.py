"""An administrator removes the passkeys that a person has lost; it is audited."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from coordinator.models import AuditLog, Passkey
from tests.passkeys.conftest import CODES, Browser
from tests.people import person
from tests.people import signed_in as signed_in_as

pytestmark = pytest.mark.django_db
Make = Callable[..., Browser]


def test_an_administrator_removes_a_lost_passkey(with_passkey: Make) -> None:
    with_passkey()
    admin = signed_in_as("admin")
    user, row = User.objects.get(username="approver"), Passkey.objects.get()
    page = admin.get(reverse("admin:auth_user_change", args=[user.pk])).text
    listed = f"{reverse('admin:coordinator_passkey_changelist')}?user_id={user.pk}"
    assert f'href="{listed}"' in page
    assert "Laptop" in admin.get(listed).text
    delete = reverse("admin:coordinator_passkey_delete", args=[row.pk])
    assert "Laptop" in admin.get(reverse("admin:coordinator_passkey_change", args=[row.pk])).text
    assert admin.post(delete, {"post": "yes"}).status_code == 302
    assert Passkey.objects.count() == 0
    audit = AuditLog.objects.get(event_type="PASSKEY_REMOVED")
    assert (audit.actor_id, audit.target_id, audit.metadata["name"]) == ("user:admin", "approver", "Laptop")


def test_nobody_adds_or_changes_one_there(with_passkey: Make) -> None:
    with_passkey()
    admin = signed_in_as("admin")
    assert admin.get("/admin/coordinator/passkey/add/").status_code == 403
    path = reverse("admin:coordinator_passkey_change", args=[Passkey.objects.get().pk])
    assert admin.post(path, {"name": "mine"}).status_code == 403
    assert Passkey.objects.get().name == "Laptop"


def test_no_page_shows_a_hash_of_a_code(with_passkey: Make) -> None:
    browser = with_passkey()
    browser.post(CODES)
    person("viewer")
    admin = signed_in_as("admin")
    assert "code hash" not in admin.get("/admin/coordinator/recoverycode/").text.lower()
