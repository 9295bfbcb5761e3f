"""What must stand after every migrate: the feed's triggers and the groups of the three roles.

Idempotent: it looks first and adds what is missing. The one use of a Django signal (design §4).
"""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission
from django.db import connections
from django.db.models import Q
from django.db.models.signals import post_migrate

from coordinator.feed import triggers
from coordinator.identity.roles import ADMIN, APPROVER, ROLES, VIEWER
from coordinator.operations import startup

# Each role has the permissions of those before it too, so that Django's own checks agree with has_role().
OF_THE_APPS = Q(content_type__app_label__in=("coordinator", "auth"))
GRANTED = {
    VIEWER: Q(content_type__app_label="coordinator", codename__startswith="view_"),
    APPROVER: Q(
        content_type__app_label="coordinator",
        codename__in=("change_permissionrequest", "add_grant", "change_grant", "delete_grant"),
    ),
    ADMIN: OF_THE_APPS,
}


def connect(config: AppConfig) -> None:
    """Have `run` called after every migrate, once, for this app."""
    post_migrate.connect(run, sender=config, dispatch_uid="coordinator.operations.post_migrate")


def run(sender: AppConfig, using: str, **kwargs: Any) -> None:  # noqa: ARG001 - as Django calls it
    """Restore the triggers and keep the role groups on the database `using`.

    Where a newer version has migrated it, the triggers are that version's.
    """
    applied = startup.applied_migrations(on=connections[using])
    if not startup.migrations_of_newer(startup.migrations_on_disk(), applied):
        triggers.restore(connections[using])
    keep_role_groups(using)


def keep_role_groups(using: str) -> None:
    """Make the groups that are missing and give each the permissions it lacks; take none away."""
    tables = connections[using].introspection.table_names()
    if not {"auth_group", "auth_permission", "django_content_type"} <= set(tables):
        return
    for label in ("coordinator", "auth"):
        # Django makes them in a step of its own, which may come after this one.
        create_permissions(apps.get_app_config(label), verbosity=0, using=using)
    granted = Q(pk__in=[])
    for role in ROLES:
        granted |= GRANTED[role]
        group, _ = Group.objects.using(using).get_or_create(name=role)
        lacked = Permission.objects.using(using).filter(granted).exclude(group=group)
        if lacked:
            group.permissions.add(*lacked)
