"""Who joined with a passkey does not remove their only way to sign in."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions.people import accounts, users
from coordinator.models import Passkey

pytestmark = pytest.mark.django_db


def test_the_only_way_to_sign_in_is_not_removed() -> None:
    user = users.build_user("grace", "x-unknown-secret-9")
    accounts.set_unknown_password_on_unsaved_user(user)
    user.save()
    row = Passkey.objects.create(
        user_id=user.pk,
        name="Laptop",
        credential_id="c",
        public_key="p",
        user_handle="h",
        rp_id="localhost",
        sign_count=0,
        made_at=timezone.now(),
    )
    client = Client()
    client.force_login(user)
    client.post(f"/ui/account/passkeys/{row.pk}/remove/")
    assert Passkey.objects.filter(user_id=user.pk).exists()
