"""Who may use which server and tool, and what holds where nothing was said."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField, JsonTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0018_add_mcp_servers")]

    operations = [
        step(
            [
                """
CREATE TABLE mcp_access_control (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    entry_type TEXT NOT NULL CHECK (entry_type IN ('capability', 'server_grant', 'tool_grant')),
    agent_id TEXT NOT NULL,
    server_id TEXT NOT NULL,
    tool_name TEXT,
    permission TEXT NOT NULL DEFAULT 'allow',
    granted_by TEXT,
    granted_at TEXT NOT NULL,
    expires_at TEXT,
    justification TEXT,
    metadata TEXT
)""",
                "CREATE INDEX idx_mcp_access_lookup ON mcp_access_control (agent_id, server_id, tool_name)",
                "CREATE INDEX idx_mcp_access_server_id ON mcp_access_control (server_id)",
                "CREATE INDEX idx_mcp_access_entry_type ON mcp_access_control (entry_type)",
                "ALTER TABLE mcp_servers ADD COLUMN default_policy TEXT NOT NULL DEFAULT 'opt-in'",
            ],
            [
                "ALTER TABLE mcp_servers DROP COLUMN default_policy",
                "DROP TABLE mcp_access_control",
            ],
            [
                migrations.CreateModel(
                    "Grant",
                    [
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("entry_type", models.TextField()),
                        ("agent_id", models.TextField()),
                        ("server_id", models.TextField()),
                        ("tool_name", models.TextField(blank=True, null=True)),
                        ("permission", models.TextField(db_default="allow", default="allow")),
                        ("granted_by", models.TextField(blank=True, null=True)),
                        ("granted_at", IsoTextField()),
                        ("expires_at", IsoTextField(blank=True, null=True)),
                        ("justification", models.TextField(blank=True, null=True)),
                        ("metadata", JsonTextField(blank=True, null=True)),
                    ],
                    {"db_table": "mcp_access_control"},
                ),
                migrations.AddField(
                    "McpServer", "default_policy", models.TextField(db_default="opt-in", default="opt-in")
                ),
            ],
        ),
    ]
