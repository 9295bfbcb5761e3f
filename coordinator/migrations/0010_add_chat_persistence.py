"""Chat messages and their attachments."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import JsonTextField, MsField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0009_add_constraints")]

    operations = [
        step(
            [
                """
CREATE TABLE chat_messages (
    id TEXT PRIMARY KEY,
    agent_id TEXT NOT NULL REFERENCES agents (id),
    user_id TEXT NOT NULL DEFAULT 'default',
    source TEXT NOT NULL CHECK (source IN ('user', 'agent', 'system')),
    content TEXT NOT NULL,
    metadata TEXT,
    created_at INTEGER NOT NULL
)""",
                """
CREATE INDEX idx_chat_messages_agent_user ON chat_messages (agent_id, user_id, created_at DESC)""",
                """
CREATE TABLE chat_attachments (
    id TEXT PRIMARY KEY,
    message_id TEXT NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    filename TEXT NOT NULL,
    mime_type TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    storage_type TEXT NOT NULL CHECK (storage_type IN ('inline', 'disk')),
    inline_data BLOB,
    disk_path TEXT,
    created_at INTEGER NOT NULL
)""",
            ],
            ["DROP TABLE chat_attachments", "DROP TABLE chat_messages"],
            [
                migrations.CreateModel(
                    "ChatMessage",
                    [
                        ("id", models.TextField(primary_key=True, serialize=False)),
                        (
                            "agent",
                            models.ForeignKey(
                                "coordinator.agent",
                                models.DO_NOTHING,
                                db_index=False,
                                related_name="chat_messages",
                            ),
                        ),
                        ("user_id", models.TextField(db_default="default", default="default")),
                        ("source", models.TextField()),
                        ("content", JsonTextField()),
                        ("metadata", JsonTextField(blank=True, null=True)),
                        ("created_at", MsField()),
                    ],
                    {"db_table": "chat_messages"},
                ),
                migrations.CreateModel(
                    "ChatAttachment",
                    [
                        ("id", models.TextField(primary_key=True, serialize=False)),
                        (
                            "message",
                            models.ForeignKey(
                                "coordinator.chatmessage",
                                models.DO_NOTHING,
                                db_index=False,
                                related_name="attachments",
                            ),
                        ),
                        ("filename", models.TextField()),
                        ("mime_type", models.TextField()),
                        ("size_bytes", models.BigIntegerField()),
                        ("storage_type", models.TextField()),
                        ("inline_data", models.BinaryField(blank=True, null=True)),
                        ("disk_path", models.TextField(blank=True, null=True)),
                        ("created_at", MsField()),
                    ],
                    {"db_table": "chat_attachments"},
                ),
            ],
        ),
    ]
