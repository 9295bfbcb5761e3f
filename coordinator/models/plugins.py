"""Plugins: whether each is on, what it may do, how it is set up, what it remembers."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from coordinator.models.fields import JsonTextField, MsField, SqlDateTimeField


class PluginPermission(models.TextChoices):
    """The nine permissions that are known; a row may hold others, which are kept."""

    VISION_READ = "VisionRead"
    INPUT_CONTROL = "InputControl"
    FILE_READ = "FileRead"
    FILE_WRITE = "FileWrite"
    NETWORK_ACCESS = "NetworkAccess"
    PROCESS_EXECUTION = "ProcessExecution"
    MEMORY_READ = "MemoryRead"
    MEMORY_WRITE = "MemoryWrite"
    ADMIN_ACCESS = "AdminAccess"


class PluginSetting(models.Model):
    """One plugin: whether it is on, and which permissions people granted it."""

    plugin_id = models.TextField(primary_key=True)
    is_active = models.BooleanField(default=True, db_default=True)
    allowed_permissions = JsonTextField(null=True, blank=True, default=list, db_default=models.Value("[]"))

    class Meta:
        db_table = "plugin_settings"

    def __str__(self) -> str:
        return str(self.plugin_id)


class PluginConfig(models.Model):
    """One configuration value of a plugin. Values of secret-looking keys are never shown."""

    pk = models.CompositePrimaryKey("plugin_id", "config_key")
    plugin_id = models.TextField()
    config_key = models.TextField()
    config_value = models.TextField(null=True, blank=True)

    class Meta:
        db_table = "plugin_configs"

    def __str__(self) -> str:
        return f"{self.plugin_id}: {self.config_key}"


class PluginData(models.Model):
    """One value that a plugin keeps for itself."""

    pk = models.CompositePrimaryKey("plugin_id", "key")
    plugin_id = models.TextField()
    key = models.TextField()
    value = models.TextField(null=True, blank=True)
    updated_at = SqlDateTimeField(null=True, blank=True, db_default=Now())

    class Meta:
        db_table = "plugin_data"

    def __str__(self) -> str:
        return f"{self.plugin_id}: {self.key}"


class RuntimePlugin(models.Model):
    """A plugin that was written while the system ran: its code, who made it, and in which generation."""

    plugin_id = models.TextField(primary_key=True)
    script_name = models.TextField()
    description = models.TextField(null=True, blank=True)
    code_content = models.TextField()
    permissions = JsonTextField(null=True, blank=True, default=list, db_default=models.Value("[]"))
    created_at = MsField()
    created_by = models.TextField(null=True, blank=True)
    generation_number = models.BigIntegerField(null=True, blank=True)
    is_active = models.BooleanField(default=True, db_default=True)

    class Meta:
        db_table = "runtime_plugins"

    def __str__(self) -> str:
        return str(self.plugin_id)
