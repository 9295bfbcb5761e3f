"""Values stored for a plugin by key: its configuration, and its own data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db import IntegrityError, transaction
from django.utils import timezone

from coordinator.actions.audit import audit
from coordinator.actions.upkeep import changed_columns
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.lib import row_versions
from coordinator.models import PluginConfig, PluginData
from coordinator.secrets import MASK, is_secret_key_or_url_password, is_unchanged_mask

Row = TypeVar("Row", PluginConfig, PluginData)


def compute_plugin_value_version(value: str | None) -> str:
    """Return the version of one value, by which an editor's save is known to be based on it."""
    return row_versions.hash_column_values_as_version([value])


@dataclass(frozen=True)
class PluginValueTable(Generic[Row]):
    """One kind of values: which table and columns hold it, and what it is called in refusals and the audit log."""

    model: type[Row]
    key_name: str
    value_name: str
    noun: str
    changed: str
    deleted: str
    dated: bool = False

    def add_plugin_value(
        self, plugin_id: str, key: str, value: str | None, *, actor: Actor, now: datetime | None = None
    ) -> Row:
        """Add a value.

        Raises UnprocessableRequest for an empty key or the mask of no secret, Conflict for one that is there.
        """
        changed_columns.require_valid_id(key, "A value")
        if value == MASK and is_secret_key_or_url_password(key):
            raise UnprocessableRequest(
                f"{MASK} stands for a stored secret, and none is stored for {key!r} yet. Enter the secret itself."
            )
        row = self.model(plugin_id=plugin_id, **{self.key_name: key}, **self.build_value_columns(value, now))
        try:
            with transaction.atomic():
                row.save(force_insert=True)
                self.record_value_change(self.changed, row, actor, now)
        except IntegrityError:
            raise Conflict(f"{plugin_id} already has a {self.noun} {key!r}.") from None
        return row

    def change_plugin_value(
        self,
        plugin_id: str,
        key: str,
        value: str | None,
        *,
        actor: Actor,
        seen_version: str | None = None,
        now: datetime | None = None,
    ) -> Row:
        """Change a value; the mask of a secret keeps what is stored.

        Raises NotFound, or Conflict where it is not as it was `seen`.
        """
        with transaction.atomic():
            row = self.lock_plugin_value(plugin_id, key, seen_version)
            stored = getattr(row, self.value_name)
            if stored != value and not is_unchanged_mask(key, stored, value or ""):
                changes = self.build_value_columns(value, now)
                for name, new in changes.items():
                    setattr(row, name, new)
                row.save(update_fields=list(changes))
                self.record_value_change(self.changed, row, actor, now)
        return row

    def delete_plugin_value(
        self,
        plugin_id: str,
        key: str,
        *,
        actor: Actor,
        seen_version: str | None = None,
        now: datetime | None = None,
    ) -> None:
        """Remove a value. Raises NotFound, or Conflict where it is not as it was `seen`."""
        with transaction.atomic():
            row = self.lock_plugin_value(plugin_id, key, seen_version)
            self.record_value_change(self.deleted, row, actor, now)
            row.delete()

    def build_value_columns(self, value: str | None, now: datetime | None) -> dict[str, Any]:
        dates = {"updated_at": now or timezone.now()} if self.dated else {}
        return {self.value_name: value, **dates}

    def lock_plugin_value(self, plugin_id: str, key: str, seen_version: str | None) -> Row:
        row = self.model._default_manager.select_for_update().filter(pk=(plugin_id, key)).first()
        if row is None:
            raise NotFound(f"{plugin_id} no longer has a value {key!r}. Reload the page.")
        version = compute_plugin_value_version(getattr(row, self.value_name))
        row_versions.require_current_version(version, seen_version, f"The value {key!r} of {plugin_id}")
        return row

    def record_value_change(self, event: str, row: Row, actor: Actor, now: datetime | None) -> None:
        """Write the audit row: the key and how long the value is, never the value, whatever it is."""
        length = len(getattr(row, self.value_name) or "")
        audit.record_audit_entry(
            event,
            actor=actor,
            target=row.plugin_id,
            result="success",
            metadata={"key": getattr(row, self.key_name), "value_length": length},
            now=now,
        )


CONFIG = PluginValueTable(
    PluginConfig, "config_key", "config_value", "configuration value", "CONFIG_UPDATED", "CONFIG_DELETED"
)
DATA = PluginValueTable(
    PluginData, "key", "value", "stored value", "PLUGIN_DATA_UPDATED", "PLUGIN_DATA_DELETED", dated=True
)
