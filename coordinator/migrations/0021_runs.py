"""Orders to agents, which runners claim."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField, JsonTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0020_sessions_and_events")]

    operations = [
        step(
            [
                """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    type TEXT NOT NULL,
    agent_name TEXT,
    prompt TEXT NOT NULL,
    project_dir TEXT,
    parent_session_id TEXT,
    execution_mode TEXT NOT NULL DEFAULT 'sync',
    demands TEXT,
    status TEXT NOT NULL DEFAULT 'pending',
    runner_id TEXT,
    error TEXT,
    created_at TEXT NOT NULL,
    claimed_at TEXT,
    started_at TEXT,
    completed_at TEXT,
    timeout_at TEXT
)""",
                "CREATE INDEX idx_runs_session_id ON runs (session_id)",
                "CREATE INDEX idx_runs_status ON runs (status)",
                "CREATE INDEX idx_runs_runner_id ON runs (runner_id)",
                "CREATE INDEX idx_runs_status_created_at ON runs (status, created_at)",
            ],
            ["DROP TABLE runs"],
            [
                migrations.CreateModel(
                    "Run",
                    [
                        ("run_id", models.TextField(primary_key=True, serialize=False)),
                        (
                            "session",
                            models.ForeignKey(
                                "coordinator.session", models.DO_NOTHING, db_index=False, related_name="runs"
                            ),
                        ),
                        ("type", models.TextField()),
                        ("agent_name", models.TextField(blank=True, null=True)),
                        ("prompt", models.TextField()),
                        ("project_dir", models.TextField(blank=True, null=True)),
                        ("parent_session_id", models.TextField(blank=True, null=True)),
                        ("execution_mode", models.TextField(db_default="sync", default="sync")),
                        ("demands", JsonTextField(blank=True, null=True)),
                        ("status", models.TextField(db_default="pending", default="pending")),
                        ("runner_id", models.TextField(blank=True, null=True)),
                        ("error", models.TextField(blank=True, null=True)),
                        ("created_at", IsoTextField()),
                        ("claimed_at", IsoTextField(blank=True, null=True)),
                        ("started_at", IsoTextField(blank=True, null=True)),
                        ("completed_at", IsoTextField(blank=True, null=True)),
                        ("timeout_at", IsoTextField(blank=True, null=True)),
                    ],
                    {"db_table": "runs"},
                ),
            ],
        ),
    ]
