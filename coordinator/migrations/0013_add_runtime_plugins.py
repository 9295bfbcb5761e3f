"""Plugins that are registered while the system runs."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import JsonTextField, MsField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0012_agent_heartbeat_power")]

    operations = [
        step(
            [
                """
CREATE TABLE runtime_plugins (
    plugin_id TEXT PRIMARY KEY,
    script_name TEXT NOT NULL,
    description TEXT,
    code_content TEXT NOT NULL,
    permissions TEXT DEFAULT '[]',
    created_at INTEGER NOT NULL,
    created_by TEXT,
    generation_number INTEGER,
    is_active BOOLEAN NOT NULL DEFAULT 1
)""",
                "CREATE INDEX idx_runtime_plugins_is_active ON runtime_plugins (is_active)",
            ],
            ["DROP TABLE runtime_plugins"],
            [
                migrations.CreateModel(
                    "RuntimePlugin",
                    [
                        ("plugin_id", models.TextField(primary_key=True, serialize=False)),
                        ("script_name", models.TextField()),
                        ("description", models.TextField(blank=True, null=True)),
                        ("code_content", models.TextField()),
                        (
                            "permissions",
                            JsonTextField(blank=True, db_default=models.Value("[]"), default=list, null=True),
                        ),
                        ("created_at", MsField()),
                        ("created_by", models.TextField(blank=True, null=True)),
                        ("generation_number", models.BigIntegerField(blank=True, null=True)),
                        ("is_active", models.BooleanField(db_default=True, default=True)),
                    ],
                    {"db_table": "runtime_plugins"},
                ),
            ],
        ),
    ]
