"""Makes a data folder for tests of the served program (tests/served.py): migrated, with keys and people."""

from __future__ import annotations

import gc
import os

import django


def main() -> None:
    """Migrate, prepare the static files, and fill the database."""
    from django.core.management import call_command

    from coordinator.operations import startup

    call_command("migrate", verbosity=0, skip_checks=True)
    startup.collect_static_files_if_changed(say=str)
    fill()


def fill() -> None:
    """Make one key a scope, one with all, and one person a role (two approvers); count the hours without events."""
    from django.contrib.auth.models import Group, User
    from django.utils import timezone

    from coordinator.actions.people.keys import SHOWN, hash_api_key
    from coordinator.actions.usage.activity import refresh_due_activity_hours
    from coordinator.identity.scopes import SCOPES
    from coordinator.models import ApiKey
    from tests.served import KEYS, PEOPLE
    from tests.unbound import accept_unbound_keys

    accept_unbound_keys()  # so that one key speaks for any agent of a test
    for name, raw in KEYS.items():
        ApiKey.objects.create(
            name=f"test-{name}",
            prefix=raw[:SHOWN],
            key_hash=hash_api_key(raw),
            scopes=list(SCOPES) if name == "all" else [name],
            created_at=timezone.now(),
            created_by="system:tests",
        )
    for name, password in PEOPLE.items():
        user = User.objects.create_user(name, password=password)
        user.groups.add(Group.objects.get(name=name.rstrip("2")))
    refresh_due_activity_hours(timezone.now())  # two weeks of hours: a third of a second of each server's


if __name__ == "__main__":
    gc.disable()  # half a second of two
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    main()
