"""Where imported servers' variables and the branches of imported chats are kept."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0047_transparency_log")]

    operations = [
        step(
            [
                """
CREATE TABLE mcp_server_variables (
    server_id TEXT NOT NULL REFERENCES mcp_servers (name) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (server_id, name)
)""",
                """
CREATE TABLE chat_branches (
    message_id TEXT NOT NULL PRIMARY KEY REFERENCES chat_messages (id) ON DELETE CASCADE,
    parent_id TEXT,
    branch_index INTEGER NOT NULL DEFAULT 0
)""",
                "CREATE INDEX sbx_chat_branches_parent ON chat_branches (parent_id) WHERE parent_id IS NOT NULL",
            ],
            ["DROP TABLE chat_branches", "DROP TABLE mcp_server_variables"],
            [
                migrations.CreateModel(
                    name="McpServerVariable",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "server_id",
                                "name",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        (
                            "server",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="variables",
                                to="coordinator.mcpserver",
                            ),
                        ),
                        ("name", models.TextField()),
                        ("value", models.TextField()),
                    ],
                    options={"db_table": "mcp_server_variables"},
                ),
                migrations.CreateModel(
                    name="ChatBranch",
                    fields=[
                        (
                            "message",
                            models.OneToOneField(
                                db_column="message_id",
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="branch",
                                serialize=False,
                                to="coordinator.chatmessage",
                            ),
                        ),
                        ("parent_id", models.TextField(blank=True, null=True)),
                        ("branch_index", models.BigIntegerField(db_default=0, default=0)),
                    ],
                    options={"db_table": "chat_branches"},
                ),
            ],
        ),
    ]
