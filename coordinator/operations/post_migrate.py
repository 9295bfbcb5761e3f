"""Restores triggers and role groups after every migrate. The one use of a Django signal."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate

from coordinator.operations import startup, triggers_and_groups


def connect_post_migrate(config: AppConfig) -> None:
    """Have `restore_after_migrate` called after every migrate, once, for this app."""
    post_migrate.connect(
        restore_after_migrate, sender=config, dispatch_uid="coordinator.operations.post_migrate"
    )


def restore_after_migrate(sender: AppConfig, using: str, **kwargs: Any) -> None:  # noqa: ARG001 - as Django calls it
    """Restore the triggers and keep the role groups on the database `using`.

    Where a newer version has migrated it, the triggers are that version's.
    """
    applied = startup.applied_migrations(on=connections[using])
    if startup.find_newer_migrations(startup.migrations_on_disk(), applied):
        triggers_and_groups.ensure_role_groups(using)
    else:
        triggers_and_groups.restore_triggers_and_groups(using)
