"""Fills a fresh database with the keys and people that tests of the served program use (tests/served.py)."""

from __future__ import annotations

import os

import django


def main() -> None:
    """Make one key a scope, one with all, and one person a role (two approvers)."""
    from django.contrib.auth.models import Group, User
    from django.utils import timezone

    from coordinator.actions.keys import SHOWN, hash_of
    from coordinator.models import ApiKey
    from coordinator.models.keys import SCOPES
    from tests.served import KEYS, PEOPLE

    for name, raw in KEYS.items():
        ApiKey.objects.create(
            name=f"test-{name}",
            prefix=raw[:SHOWN],
            key_hash=hash_of(raw),
            scopes=list(SCOPES) if name == "all" else [name],
            created_at=timezone.now(),
            created_by="system:tests",
        )
    for name, password in PEOPLE.items():
        user = User.objects.create_user(name, password=password)
        user.groups.add(Group.objects.get(name=name.rstrip("2")))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    main()
