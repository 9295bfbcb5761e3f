"""MCP servers that are started again after a restart."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import JsonTextField, SecondsField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0017_grant_memory_permissions")]

    operations = [
        step(
            [
                """
CREATE TABLE mcp_servers (
    name TEXT PRIMARY KEY,
    command TEXT NOT NULL,
    args TEXT NOT NULL DEFAULT '[]',
    script_content TEXT,
    description TEXT,
    created_at INTEGER NOT NULL,
    is_active BOOLEAN NOT NULL DEFAULT 1
)""",
            ],
            ["DROP TABLE mcp_servers"],
            [
                migrations.CreateModel(
                    "McpServer",
                    [
                        ("name", models.TextField(primary_key=True, serialize=False)),
                        ("command", models.TextField()),
                        ("args", JsonTextField(db_default=models.Value("[]"), default=list)),
                        ("script_content", models.TextField(blank=True, null=True)),
                        ("description", models.TextField(blank=True, null=True)),
                        ("created_at", SecondsField()),
                        ("is_active", models.BooleanField(db_default=True, default=True)),
                    ],
                    {"db_table": "mcp_servers", "verbose_name": "MCP server"},
                ),
            ],
        ),
    ]
