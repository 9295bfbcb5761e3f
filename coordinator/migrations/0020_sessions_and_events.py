"""The agent coordinator's document: sessions and their events."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField, JsonTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0019_add_mcp_access_control")]

    operations = [
        step(
            [
                """
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    created_at TEXT NOT NULL,
    project_dir TEXT,
    agent_name TEXT,
    last_resumed_at TEXT,
    parent_session_id TEXT REFERENCES sessions (session_id) ON DELETE SET NULL,
    executor_session_id TEXT,
    executor_profile TEXT,
    hostname TEXT
)""",
                "CREATE INDEX idx_sessions_executor_session_id ON sessions (executor_session_id)",
                "CREATE INDEX idx_sessions_hostname ON sessions (hostname)",
                """
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    tool_name TEXT,
    tool_input TEXT,
    tool_output TEXT,
    error TEXT,
    exit_code INTEGER,
    reason TEXT,
    role TEXT,
    content TEXT,
    FOREIGN KEY (session_id) REFERENCES sessions (session_id) ON DELETE CASCADE
)""",
                "CREATE INDEX idx_events_session_timestamp ON events (session_id, timestamp DESC)",
            ],
            ["DROP TABLE events", "DROP TABLE sessions"],
            [
                migrations.CreateModel(
                    "Session",
                    [
                        ("session_id", models.TextField(primary_key=True, serialize=False)),
                        ("status", models.TextField()),
                        ("created_at", IsoTextField()),
                        ("project_dir", models.TextField(blank=True, null=True)),
                        ("agent_name", models.TextField(blank=True, null=True)),
                        ("last_resumed_at", IsoTextField(blank=True, null=True)),
                        (
                            "parent_session",
                            models.ForeignKey(
                                "coordinator.session",
                                models.DO_NOTHING,
                                blank=True,
                                db_index=False,
                                null=True,
                                related_name="children",
                            ),
                        ),
                        ("executor_session_id", models.TextField(blank=True, null=True)),
                        ("executor_profile", models.TextField(blank=True, null=True)),
                        ("hostname", models.TextField(blank=True, null=True)),
                    ],
                    {"db_table": "sessions"},
                ),
                migrations.CreateModel(
                    "Event",
                    [
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "session",
                            models.ForeignKey(
                                "coordinator.session",
                                models.DO_NOTHING,
                                db_index=False,
                                related_name="events",
                            ),
                        ),
                        ("event_type", models.TextField()),
                        ("timestamp", models.TextField()),
                        ("tool_name", models.TextField(blank=True, null=True)),
                        ("tool_input", JsonTextField(blank=True, null=True)),
                        ("tool_output", JsonTextField(blank=True, null=True)),
                        ("error", models.TextField(blank=True, null=True)),
                        ("exit_code", models.BigIntegerField(blank=True, null=True)),
                        ("reason", models.TextField(blank=True, null=True)),
                        ("role", models.TextField(blank=True, null=True)),
                        ("content", JsonTextField(blank=True, null=True)),
                    ],
                    {"db_table": "events"},
                ),
            ],
        ),
    ]
