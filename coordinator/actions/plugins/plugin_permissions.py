"""The permissions of a plugin (`plugin_settings.allowed_permissions`), granted and revoked one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from coordinator.actions.audit import audit
from coordinator.actions.plugins import plugins
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.lib import row_versions
from coordinator.models import PluginSetting
from coordinator.models.plugins import PluginPermission

KNOWN = tuple(PluginPermission.values)


def has_plugin_permission(plugin_id: str, permission: str) -> bool:
    """Return whether the plugin holds `permission`; an unknown plugin or an unreadable column holds nothing."""
    row = PluginSetting.objects.filter(pk=plugin_id).first()
    stored = row.allowed_permissions if row else None
    return isinstance(stored, list) and permission in stored


def filter_addable_plugin_permissions(wanted_permissions: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those pairs of plugin and permission that `add_plugin_permission` would add, with one query for all."""
    pairs = {pair for pair in wanted_permissions if pair[1] in KNOWN}
    rows = PluginSetting.objects.filter(pk__in={plugin_id for plugin_id, _ in pairs})
    lists = {row.pk: [] if row.allowed_permissions is None else row.allowed_permissions for row in rows}
    return {
        (plugin_id, permission)
        for plugin_id, permission in pairs
        if isinstance(lists.get(plugin_id), list) and permission not in lists[plugin_id]
    }


def add_plugin_permission(
    plugin_id: str,
    permission: str,
    *,
    actor: Actor,
    seen_version: str | None = None,
    now: datetime | None = None,
    reason: str | None = None,
) -> list[str]:
    """Give the plugin a permission; one it holds already is left alone. Returns what it holds now.

    Raises UnprocessableRequest for a permission that does not exist, NotFound, and Conflict where the column
    is no list: what cannot be read must be mended by a person, not overwritten; Conflict too where the plugin
    is not as its editor has `seen` it.
    """
    if permission not in KNOWN:
        raise UnprocessableRequest(f"{permission!r} is not a permission. Choose from: {', '.join(KNOWN)}.")
    with transaction.atomic():
        row = lock_plugin_row(plugin_id, seen_version)
        before = require_plugin_permission_list(row)
        if permission in before:
            return before
        return save_plugin_permissions(
            row,
            [*before, permission],
            event="PERMISSION_GRANTED",
            permission=permission,
            actor=actor,
            now=now or timezone.now(),
            reason=reason,
        )


def remove_plugin_permission(
    plugin_id: str,
    permission: str,
    *,
    actor: Actor,
    seen_version: str | None = None,
    now: datetime | None = None,
    reason: str | None = None,
) -> list[str]:
    """Take a permission from the plugin and return what is left. Raises NotFound also where it held none."""
    with transaction.atomic():
        row = lock_plugin_row(plugin_id, seen_version)
        before = require_plugin_permission_list(row)
        if permission not in before:
            raise NotFound(f"{plugin_id} does not have {permission}, so there is nothing to revoke.")
        remaining = [name for name in before if name != permission]
        return save_plugin_permissions(
            row,
            remaining,
            event="PERMISSION_REVOKED",
            permission=permission,
            actor=actor,
            now=now or timezone.now(),
            reason=reason,
        )


def lock_plugin_row(plugin_id: str, seen_version: str | None = None) -> PluginSetting:
    row = PluginSetting.objects.select_for_update().filter(pk=plugin_id).first()
    if row is None:
        raise NotFound(f"There is no plugin {plugin_id!r}. Add it first.")
    row_versions.require_current_version(
        plugins.compute_plugin_version(row), seen_version, f"The plugin {plugin_id}"
    )
    return row


def require_plugin_permission_list(row: PluginSetting) -> list[str]:
    stored = row.allowed_permissions
    if stored is None:
        return []
    if not isinstance(stored, list):
        raise Conflict(f"The permissions of {row.plugin_id} cannot be read. Fix them in the admin first.")
    return [str(name) for name in stored]


def save_plugin_permissions(
    row: PluginSetting,
    after: list[str],
    *,
    event: str,
    permission: str,
    actor: Actor,
    now: datetime,
    reason: str | None,
) -> list[str]:
    changes = {"before": require_plugin_permission_list(row), "after": after}
    row.allowed_permissions = after
    row.save(update_fields=["allowed_permissions"])
    audit.record_audit_entry(
        event,
        actor=actor,
        target=row.plugin_id,
        permission=permission,
        result="success",
        reason=reason,
        metadata=changes,
        now=now,
    )
    return after
