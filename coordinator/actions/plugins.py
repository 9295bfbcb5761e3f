"""Plugins: made known, switched on and off, set up, forgotten. What they may do is in plugin_permissions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from coordinator import versions
from coordinator.actions import audit, columns
from coordinator.actors import Actor
from coordinator.errors import Conflict, Invalid, NotFound
from coordinator.models import AgentPlugin, PluginConfig, PluginData, PluginSetting
from coordinator.models.plugins import PluginPermission
from coordinator.secrets import MASK, is_kept, looks_secret

VERSIONED = ("plugin_id", "is_active", "allowed_permissions")


def version_of(row: PluginSetting) -> str:
    """Return the version that an editor of this plugin has seen."""
    return versions.of_row(row, VERSIONED)


def register(
    plugin_id: str,
    *,
    by: Actor,
    is_active: bool = True,
    permissions: Iterable[str] = (),
    now: datetime | None = None,
) -> PluginSetting:
    """Make a plugin known. Raises Invalid for an empty id or an unknown permission, Conflict for a known id."""
    columns.require_id(plugin_id, "A plugin")
    wanted = known_permissions(permissions)
    try:
        with transaction.atomic():
            row = PluginSetting(plugin_id=plugin_id, is_active=is_active, allowed_permissions=wanted)
            row.save(force_insert=True)
            audit.record(
                "PLUGIN_REGISTERED",
                actor=by,
                target=plugin_id,
                result="success",
                metadata={"after": columns.values_of(row, VERSIONED)},
                now=now,
            )
    except IntegrityError:
        raise Conflict(f"There is a plugin {plugin_id!r} already.") from None
    return row


def known_permissions(names: Iterable[str]) -> list[str]:
    """Return the names in the known order, each once. Raises Invalid for one that does not exist."""
    wanted = set(names)
    if unknown := wanted - set(PluginPermission.values):
        raise Invalid(f"No such permission: {', '.join(sorted(unknown))}.")
    return [name for name in PluginPermission.values if name in wanted]


def locked(plugin_id: str, seen: str | None = None) -> PluginSetting:
    """Return the plugin, locked. Raises NotFound, or Conflict where it is not as the editor has `seen` it."""
    row = PluginSetting.objects.select_for_update().filter(pk=plugin_id).first()
    if row is None:
        raise NotFound(f"There is no plugin {plugin_id!r}.")
    versions.require_unchanged(version_of(row), seen, f"The plugin {plugin_id}")
    return row


def set_active(
    plugin_id: str,
    active: bool,
    *,
    by: Actor,
    seen: str | None = None,
    reason: str | None = None,
    now: datetime | None = None,
) -> PluginSetting:
    """Switch a plugin on or off; one that is so already is left alone."""
    with transaction.atomic():
        row = locked(plugin_id, seen)
        before = row.is_active
        if bool(before) == active:
            return row
        row.is_active = active
        row.save(update_fields=["is_active"])
        audit.record(
            "PLUGIN_ENABLED" if active else "PLUGIN_DISABLED",
            actor=by,
            target=plugin_id,
            result="success",
            reason=reason,
            metadata={"before": {"is_active": before}, "after": {"is_active": active}},
            now=now,
        )
    return row


def mend_permissions(
    plugin_id: str,
    permissions: Iterable[str],
    *,
    by: Actor,
    seen: str | None = None,
    reason: str | None = None,
    now: datetime | None = None,
) -> PluginSetting:
    """Replace a permissions column that holds no list, which grant and revoke refuse to touch.

    Raises Conflict where the column can be read: what is readable is granted and revoked one by one.
    """
    wanted = known_permissions(permissions)
    with transaction.atomic():
        row = locked(plugin_id, seen)
        if row.allowed_permissions is None or isinstance(row.allowed_permissions, list):
            raise Conflict(
                f"The permissions of {plugin_id} can be read by now: reload and change them there."
            )
        before = columns.values_of(row, ["allowed_permissions"])
        row.allowed_permissions = wanted
        row.save(update_fields=["allowed_permissions"])
        audit.record(
            "PERMISSIONS_REPLACED",
            actor=by,
            target=plugin_id,
            result="success",
            reason=reason,
            metadata={"before": before, "after": {"allowed_permissions": wanted}},
            now=now,
        )
    return row


def consequences(plugin_ids: Iterable[str]) -> dict[str, int]:
    """Return how many rows of what go with these plugins."""
    ids = list(plugin_ids)
    return {
        "configuration values": PluginConfig.objects.filter(plugin_id__in=ids).count(),
        "stored values": PluginData.objects.filter(plugin_id__in=ids).count(),
        "assignments to agents": AgentPlugin.objects.filter(plugin_id__in=ids).count(),
    }


def delete(plugin_id: str, *, by: Actor, reason: str | None = None, now: datetime | None = None) -> None:
    """Forget a plugin: its permissions, configuration, stored values and assignments. Raises NotFound."""
    with transaction.atomic():
        row = locked(plugin_id)
        taken = consequences([plugin_id])
        for model in (PluginConfig, PluginData, AgentPlugin):
            model._default_manager.filter(plugin_id=plugin_id).delete()
        before = columns.values_of(row, VERSIONED)
        row.delete()
        audit.record(
            "PLUGIN_DELETED",
            actor=by,
            target=plugin_id,
            result="success",
            reason=reason,
            metadata={"before": before, "taken_along": taken},
            now=now,
        )


# --- configuration and stored values ----------------------------------------------------------------------


def config_version(value: str | None) -> str:
    """Return the version of one configuration or stored value."""
    return versions.of_values([value])


def add_config(
    plugin_id: str, key: str, value: str | None, *, by: Actor, now: datetime | None = None
) -> PluginConfig:
    """Add one configuration value. Raises Invalid for an empty key, Conflict for one that is there."""
    _require_new_value(key, value)
    row = PluginConfig(plugin_id=plugin_id, config_key=key, config_value=value)
    _insert(row, f"{plugin_id} has a configuration value {key!r} already.", "CONFIG_UPDATED", by, now)
    return row


def change_config(
    plugin_id: str,
    key: str,
    value: str | None,
    *,
    by: Actor,
    seen: str | None = None,
    now: datetime | None = None,
) -> PluginConfig:
    """Change one configuration value; the mask of a secret keeps what is stored. Raises NotFound, Conflict."""
    with transaction.atomic():
        row: PluginConfig = _locked_value(PluginConfig, plugin_id, key, seen)
        if row.config_value != value and not is_kept(key, row.config_value, value or ""):
            row.config_value = value
            row.save(update_fields=["config_value"])
            _tell("CONFIG_UPDATED", row, by, now)
    return row


def delete_config(
    plugin_id: str, key: str, *, by: Actor, seen: str | None = None, now: datetime | None = None
) -> None:
    """Remove one configuration value. Raises NotFound, or Conflict where it is not as it was `seen`."""
    _remove(PluginConfig, plugin_id, key, "CONFIG_DELETED", by=by, seen=seen, now=now)


def add_data(
    plugin_id: str, key: str, value: str | None, *, by: Actor, now: datetime | None = None
) -> PluginData:
    """Add one stored value. Raises Invalid for an empty key, Conflict for one that is there."""
    _require_new_value(key, value)
    row = PluginData(plugin_id=plugin_id, key=key, value=value, updated_at=now or timezone.now())
    _insert(row, f"{plugin_id} has a stored value {key!r} already.", "PLUGIN_DATA_UPDATED", by, now)
    return row


def change_data(
    plugin_id: str,
    key: str,
    value: str | None,
    *,
    by: Actor,
    seen: str | None = None,
    now: datetime | None = None,
) -> PluginData:
    """Change one stored value; the mask of a secret keeps what is stored. Raises NotFound, Conflict."""
    with transaction.atomic():
        row: PluginData = _locked_value(PluginData, plugin_id, key, seen)
        if row.value != value and not is_kept(key, row.value, value or ""):
            row.value, row.updated_at = value, now or timezone.now()
            row.save(update_fields=["value", "updated_at"])
            _tell("PLUGIN_DATA_UPDATED", row, by, now)
    return row


def delete_data(
    plugin_id: str, key: str, *, by: Actor, seen: str | None = None, now: datetime | None = None
) -> None:
    """Remove one stored value. Raises NotFound, or Conflict where it is not as it was `seen`."""
    _remove(PluginData, plugin_id, key, "PLUGIN_DATA_DELETED", by=by, seen=seen, now=now)


def _require_new_value(key: str, value: str | None) -> None:
    columns.require_id(key, "A value")
    if value == MASK and looks_secret(key):
        raise Invalid(f"{MASK} stands for a stored secret, and none is stored for {key!r} yet.")


def _key_and_value(row: PluginConfig | PluginData) -> tuple[str, str | None]:
    return (row.config_key, row.config_value) if isinstance(row, PluginConfig) else (row.key, row.value)


def _tell(event: str, row: PluginConfig | PluginData, by: Actor, now: datetime | None) -> None:
    """Write the audit row: the key and how long the value is, never the value, whatever it is."""
    key, value = _key_and_value(row)
    audit.record(
        event,
        actor=by,
        target=row.plugin_id,
        result="success",
        metadata={"key": key, "value_length": len(value or "")},
        now=now,
    )


def _insert(row: PluginConfig | PluginData, taken: str, event: str, by: Actor, now: datetime | None) -> None:
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            _tell(event, row, by, now)
    except IntegrityError:
        raise Conflict(taken) from None


def _locked_value(model: type[Any], plugin_id: str, key: str, seen: str | None) -> Any:
    row = model.objects.select_for_update().filter(pk=(plugin_id, key)).first()
    if row is None:
        raise NotFound(f"{plugin_id} has no value {key!r} any more: reload the page.")
    _, value = _key_and_value(row)
    versions.require_unchanged(config_version(value), seen, f"The value {key!r} of {plugin_id}")
    return row


def _remove(
    model: type[Any],
    plugin_id: str,
    key: str,
    event: str,
    *,
    by: Actor,
    seen: str | None,
    now: datetime | None,
) -> None:
    with transaction.atomic():
        row = _locked_value(model, plugin_id, key, seen)
        _tell(event, row, by, now)
        row.delete()
