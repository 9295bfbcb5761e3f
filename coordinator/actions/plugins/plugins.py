"""Registration, switching and removal of plugins.

Their permissions are in plugin_permissions, the values stored for them in plugin_values.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import IntegrityError, transaction

from coordinator.actions.audit import audit
from coordinator.actions.upkeep import changed_columns
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.lib import row_versions
from coordinator.models import AgentPlugin, PluginConfig, PluginData, PluginSetting
from coordinator.models.plugins import PluginPermission

VERSIONED = ("plugin_id", "is_active", "allowed_permissions")


def compute_plugin_version(row: PluginSetting) -> str:
    """Return the version that an editor of this plugin has seen."""
    return row_versions.hash_row_fields_as_version(row, VERSIONED)


def create_plugin(
    plugin_id: str,
    *,
    actor: Actor,
    is_active: bool = True,
    permissions: Iterable[str] = (),
    now: datetime | None = None,
) -> PluginSetting:
    """Make a plugin known.

    Raises UnprocessableRequest for an empty id or an unknown permission, Conflict for a known id.
    """
    changed_columns.require_valid_id(plugin_id, "A plugin")
    permission_names = normalize_permission_names(permissions)
    try:
        with transaction.atomic():
            row = PluginSetting(
                plugin_id=plugin_id, is_active=is_active, allowed_permissions=permission_names
            )
            row.save(force_insert=True)
            audit.record_audit_entry(
                "PLUGIN_REGISTERED",
                actor=actor,
                target=plugin_id,
                result="success",
                metadata={"after": changed_columns.read_column_values(row, VERSIONED)},
                now=now,
            )
    except IntegrityError:
        raise Conflict(f"A plugin {plugin_id!r} already exists.") from None
    return row


def normalize_permission_names(names: Iterable[str]) -> list[str]:
    """Return the names in the known order, each once. Raises UnprocessableRequest for one that does not exist."""
    unique_names = set(names)
    if unknown := unique_names - set(PluginPermission.values):
        raise UnprocessableRequest(f"No such permission: {', '.join(sorted(unknown))}.")
    return [name for name in PluginPermission.values if name in unique_names]


def lock_plugin(plugin_id: str, seen_version: str | None = None) -> PluginSetting:
    """Return the plugin, locked. Raises NotFound, or Conflict where it is not as the editor has `seen` it."""
    row = PluginSetting.objects.select_for_update().filter(pk=plugin_id).first()
    if row is None:
        raise NotFound(f"There is no plugin {plugin_id!r}.")
    row_versions.require_current_version(compute_plugin_version(row), seen_version, f"The plugin {plugin_id}")
    return row


def enable_or_disable_plugin(
    plugin_id: str,
    active: bool,
    *,
    actor: Actor,
    seen_version: str | None = None,
    reason: str | None = None,
    now: datetime | None = None,
) -> PluginSetting:
    """Switch a plugin on or off; one that is so already is left alone."""
    with transaction.atomic():
        row = lock_plugin(plugin_id, seen_version)
        before = row.is_active
        if bool(before) == active:
            return row
        row.is_active = active
        row.save(update_fields=["is_active"])
        audit.record_audit_entry(
            "PLUGIN_ENABLED" if active else "PLUGIN_DISABLED",
            actor=actor,
            target=plugin_id,
            result="success",
            reason=reason,
            metadata={"before": {"is_active": before}, "after": {"is_active": active}},
            now=now,
        )
    return row


def replace_broken_permissions(
    plugin_id: str,
    permissions: Iterable[str],
    *,
    actor: Actor,
    seen_version: str | None = None,
    reason: str | None = None,
    now: datetime | None = None,
) -> PluginSetting:
    """Replace a permissions column that holds no list, which grant and revoke refuse to touch.

    Raises Conflict where the column can be read: what is readable is granted and revoked one by one.
    """
    permission_names = normalize_permission_names(permissions)
    with transaction.atomic():
        row = lock_plugin(plugin_id, seen_version)
        if row.allowed_permissions is None or isinstance(row.allowed_permissions, list):
            raise Conflict(
                f"The permissions of {plugin_id} can now be read. Reload the page and change them there."
            )
        before = changed_columns.read_column_values(row, ["allowed_permissions"])
        row.allowed_permissions = permission_names
        row.save(update_fields=["allowed_permissions"])
        audit.record_audit_entry(
            "PERMISSIONS_REPLACED",
            actor=actor,
            target=plugin_id,
            result="success",
            reason=reason,
            metadata={"before": before, "after": {"allowed_permissions": permission_names}},
            now=now,
        )
    return row


def count_plugin_dependents_by_kind(plugin_ids: Iterable[str]) -> dict[str, int]:
    """Return how many rows of what go with these plugins."""
    ids = list(plugin_ids)
    return {
        "configuration values": PluginConfig.objects.filter(plugin_id__in=ids).count(),
        "stored values": PluginData.objects.filter(plugin_id__in=ids).count(),
        "assignments to agents": AgentPlugin.objects.filter(plugin_id__in=ids).count(),
    }


def delete_plugin(
    plugin_id: str, *, actor: Actor, reason: str | None = None, now: datetime | None = None
) -> None:
    """Forget a plugin: its permissions, configuration, stored values and assignments. Raises NotFound."""
    with transaction.atomic():
        row = lock_plugin(plugin_id)
        dependent_counts = count_plugin_dependents_by_kind([plugin_id])
        for model in (PluginConfig, PluginData, AgentPlugin):
            model._default_manager.filter(plugin_id=plugin_id).delete()
        before = changed_columns.read_column_values(row, VERSIONED)
        row.delete()
        audit.record_audit_entry(
            "PLUGIN_DELETED",
            actor=actor,
            target=plugin_id,
            result="success",
            reason=reason,
            metadata={"before": before, "taken_along": dependent_counts},
            now=now,
        )
