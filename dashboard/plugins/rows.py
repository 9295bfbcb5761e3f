"""Plugins as rows of a list, and the data of one plugin's page. Secrets are masked in this module."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Model

from coordinator.actions.plugins import plugins
from coordinator.models import (
    Agent,
    AgentPlugin,
    AuditLog,
    PermissionRequest,
    PluginConfig,
    PluginData,
    PluginSetting,
    RuntimePlugin,
    UnreadableText,
)
from coordinator.models.plugins import PluginPermission
from coordinator.secrets import is_secret_key_or_url_password, mask_value_of_secret_key

PAGE = 50
WHAT_THEY_ALLOW = {
    "VisionRead": "sees the screen",
    "InputControl": "controls mouse and keyboard",
    "FileRead": "reads files",
    "FileWrite": "writes and deletes files",
    "NetworkAccess": "connects to other machines",
    "ProcessExecution": "starts programs",
    "MemoryRead": "reads the agent's memory",
    "MemoryWrite": "changes the agent's memory",
    "AdminAccess": "changes the system's settings",
}
PERMISSION_EVENTS = ("PERMISSION_GRANTED", "PERMISSION_REVOKED", "PERMISSIONS_REPLACED", "PLUGIN_REGISTERED")


@dataclass(frozen=True, slots=True)
class PluginRow:
    """One plugin of a list; `setting` is None if only other tables refer to it."""

    plugin_id: str
    setting: PluginSetting | None
    runtime: bool
    pending: int
    agents: int
    configs: int
    values: int

    @property
    def plugin_state(self) -> str:
        if self.setting is None:
            return "unknown"
        return "active" if self.setting.is_active else "inactive"

    @property
    def permission_names(self) -> list[str]:
        """The plugin's permissions; empty if the stored value is not a list."""
        allowed_permissions = self.setting.allowed_permissions if self.setting else None
        return [str(name) for name in allowed_permissions] if isinstance(allowed_permissions, list) else []

    @property
    def has_unreadable_permissions(self) -> bool:
        allowed_permissions = self.setting.allowed_permissions if self.setting else None
        return allowed_permissions is not None and not isinstance(allowed_permissions, list)


def load_plugin_rows(now: datetime) -> list[PluginRow]:
    settings = PluginSetting.objects.in_bulk()
    runtime = set(RuntimePlugin.objects.values_list("plugin_id", flat=True))
    waiting = PermissionRequest.objects.awaiting_decision(now)
    pending = dict(waiting.order_by().values_list("plugin_id").annotate(number=Count("*")))
    counts = [count_model_rows_by_plugin(model) for model in (AgentPlugin, PluginConfig, PluginData)]
    agents, configs, values = counts
    known_ids = {*settings, *runtime, *agents, *configs, *values} - {"", None}
    return [
        PluginRow(
            plugin_id,
            settings.get(plugin_id),
            plugin_id in runtime,
            pending.get(plugin_id, 0),
            agents.get(plugin_id, 0),
            configs.get(plugin_id, 0),
            values.get(plugin_id, 0),
        )
        for plugin_id in sorted(known_ids)
    ]


def count_model_rows_by_plugin(model: type[Model]) -> dict[str, int]:
    rows = model._default_manager.order_by().values_list("plugin_id").annotate(number=Count("*"))
    return dict(rows)


@dataclass(frozen=True, slots=True)
class PluginPermissionLine:
    """A permission, whether the plugin has it, and the latest audit entry about it."""

    name: str
    is_granted: bool
    last_entry: AuditLog | None

    @property
    def is_known_permission(self) -> bool:
        return self.name in PluginPermission.values

    @property
    def plugin_permission_description(self) -> str:
        return WHAT_THEY_ALLOW.get(self.name, "unknown permission; stays as stored")


@dataclass(frozen=True, slots=True)
class PluginValue:
    """A configuration value or a stored value, ready for display: a secret is masked."""

    key: str
    shown: str | None
    secret: bool
    updated_at: Any = None


@dataclass(frozen=True, slots=True)
class PluginDetails:
    plugin_id: str
    setting: PluginSetting | None
    runtime: RuntimePlugin | None
    permissions: list[PluginPermissionLine]
    pending: list[PermissionRequest]
    configs: list[PluginValue]
    values: list[PluginValue]
    more_after: str
    values_count: int
    agents: list[Agent]

    @property
    def setting_version(self) -> str:
        return plugins.compute_plugin_version(self.setting) if self.setting else ""

    @property
    def unreadable_permissions_text(self) -> str:
        """The stored value of the permissions if it is not a list, else an empty text."""
        allowed_permissions = self.setting.allowed_permissions if self.setting else None
        if allowed_permissions is None or isinstance(allowed_permissions, list):
            return ""
        return (
            str(allowed_permissions)
            if isinstance(allowed_permissions, UnreadableText)
            else repr(allowed_permissions)
        )

    @property
    def is_plugin_referenced_anywhere(self) -> bool:
        """Return whether an agent, a configuration value, a stored value or a script refers to the plugin."""
        return bool(self.agents or self.configs or self.values_count or self.runtime)

    @property
    def supported_permissions_not_granted(self) -> list[PluginPermissionLine]:
        return [
            permission
            for permission in self.permissions
            if permission.is_known_permission and not permission.is_granted
        ]


def load_plugin_details(plugin_id: str, now: datetime, *, prefix: str = "", after: str = "") -> PluginDetails:
    """Return a plugin, with a page of its stored values.

    The page contains the keys that begin with `prefix` and sort after `after`.
    """
    setting = PluginSetting.objects.filter(pk=plugin_id).first()
    runtime = RuntimePlugin.objects.filter(pk=plugin_id).first()
    plugin_data = PluginData.objects.filter(plugin_id=plugin_id)
    rows = list(plugin_data.filter(key__startswith=prefix, key__gt=after).order_by("key")[: PAGE + 1])
    waiting = PermissionRequest.objects.awaiting_decision(now).filter(plugin_id=plugin_id)
    users = AgentPlugin.objects.filter(plugin_id=plugin_id).values("agent_id")
    return PluginDetails(
        plugin_id,
        setting,
        runtime,
        list_permission_lines(plugin_id, setting),
        list(waiting.defer_large_columns().order_by("created_at")),
        [
            build_masked_plugin_value(row.config_key, row.config_value)
            for row in PluginConfig.objects.filter(plugin_id=plugin_id).order_by("config_key")
        ],
        [build_masked_plugin_value(row.key, row.value, row.updated_at) for row in rows[:PAGE]],
        rows[PAGE - 1].key if len(rows) > PAGE else "",
        plugin_data.count(),
        list(Agent.objects.filter(pk__in=users).order_by("name")),
    )


def build_masked_plugin_value(key: str, value: str | None, updated_at: Any = None) -> PluginValue:
    return PluginValue(
        key,
        mask_value_of_secret_key(key, value),
        bool(value) and is_secret_key_or_url_password(key, value),
        updated_at,
    )


def list_permission_lines(plugin_id: str, setting: PluginSetting | None) -> list[PluginPermissionLine]:
    stored = setting.allowed_permissions if setting else None
    stored_names = [str(name) for name in stored] if isinstance(stored, list) else []
    entries = load_last_permission_audits(plugin_id)
    foreign = [name for name in dict.fromkeys(stored_names) if name not in PluginPermission.values]
    return [
        PluginPermissionLine(name, name in stored_names, entries.get(name))
        for name in [*PluginPermission.values, *foreign]
    ]


def load_last_permission_audits(plugin_id: str) -> dict[str, AuditLog]:
    rows = AuditLog.objects.filter(
        target_id=plugin_id, event_type__in=PERMISSION_EVENTS, permission__isnull=False, result="success"
    ).order_by("id")
    return {row.permission: row for row in rows if row.permission}
