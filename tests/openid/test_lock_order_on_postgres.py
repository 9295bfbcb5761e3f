"""Who signs in at the provider and who changes that person take turns on PostgreSQL: neither ends as a deadlock."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from coordinator.actions.people import provider_sign_ins
from coordinator.identity.openid.identities import OpenIdIdentity
from coordinator.identity.roles import highest_role_of_user
from coordinator.models import ProviderIdentity

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time"),
]


def test_who_signs_in_and_who_deletes_them_take_turns() -> None:
    """Both lock the person first: the other way round, PostgreSQL ends one of them as a deadlock."""
    anna = OpenIdIdentity("https://login.example", "u-1", "anna", "admin")
    provider_sign_ins.sign_in_verified_identity(anna, "198.51.100.7", timezone.now())

    def sign_in() -> User:
        try:
            return provider_sign_ins.sign_in_verified_identity(
                replace(anna, role="viewer"), "198.51.100.7", timezone.now()
            )
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            list(User.objects.select_for_update().filter(username="anna"))
            signing_in = pool.submit(sign_in)
            wait_for_a_waiter()
            assert ProviderIdentity.objects.select_for_update().get().subject == "u-1"
        assert highest_role_of_user(signing_in.result(60)) == "viewer"


def wait_for_a_waiter() -> None:
    until = time.monotonic() + 60
    for_me = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    with connection.cursor() as cursor:
        while time.monotonic() < until:
            cursor.execute(for_me)
            if cursor.fetchone():
                return
    raise AssertionError("nobody waits for the lock")
