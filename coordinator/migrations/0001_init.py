"""Initial schema: plugin settings, plugin configs, agents."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import JsonTextField


class Migration(migrations.Migration):
    initial = True

    operations = [
        step(
            [
                """
CREATE TABLE plugin_settings (
    plugin_id TEXT PRIMARY KEY,
    is_active BOOLEAN NOT NULL DEFAULT 1
)""",
                """
CREATE TABLE plugin_configs (
    plugin_id TEXT,
    config_key TEXT,
    config_value TEXT,
    PRIMARY KEY (plugin_id, config_key)
)""",
                """
CREATE TABLE agents (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    description TEXT,
    default_engine_id TEXT NOT NULL,
    status TEXT DEFAULT 'offline',
    metadata TEXT DEFAULT '{}'
)""",
            ],
            ["DROP TABLE agents", "DROP TABLE plugin_configs", "DROP TABLE plugin_settings"],
            [
                migrations.CreateModel(
                    "PluginSetting",
                    [
                        ("plugin_id", models.TextField(primary_key=True, serialize=False)),
                        ("is_active", models.BooleanField(default=True, db_default=True)),
                    ],
                    {"db_table": "plugin_settings"},
                ),
                migrations.CreateModel(
                    "PluginConfig",
                    [
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "plugin_id",
                                "config_key",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("plugin_id", models.TextField()),
                        ("config_key", models.TextField()),
                        ("config_value", models.TextField(blank=True, null=True)),
                    ],
                    {"db_table": "plugin_configs"},
                ),
                migrations.CreateModel(
                    "Agent",
                    [
                        ("id", models.TextField(primary_key=True, serialize=False)),
                        ("name", models.TextField()),
                        ("description", models.TextField(blank=True, null=True)),
                        ("default_engine_id", models.TextField()),
                        (
                            "status",
                            models.TextField(blank=True, db_default="offline", default="offline", null=True),
                        ),
                        (
                            "metadata",
                            JsonTextField(blank=True, db_default=models.Value("{}"), default=dict, null=True),
                        ),
                    ],
                    {"db_table": "agents"},
                ),
            ],
        ),
    ]
