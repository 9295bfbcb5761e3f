"""The feed's triggers and the three roles' groups, which a database needs in addition to its tables.

Idempotent: it checks first and adds what is missing. After every migrate (post_migrate.py), and at each start: a
process killed between a migration and what follows it leaves nothing pending. A check takes some 20 ms.
"""

from __future__ import annotations

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission
from django.db import connections
from django.db.models import Q

from coordinator.feed import triggers
from coordinator.identity.roles import ADMIN, APPROVER, ROLES, VIEWER

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


def restore_triggers_and_groups(using: str) -> list[str]:
    """Create what is missing or different in the database `using`; return the names of the triggers touched."""
    touched = triggers.synchronize_feed_triggers(connections[using])
    ensure_role_groups(using)
    return touched


def ensure_role_groups(using: str) -> None:
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
