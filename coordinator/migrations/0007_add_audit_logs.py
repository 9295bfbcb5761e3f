"""The audit trail. Its model is unmanaged: the table has a trigger of its own from step 9 on."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField, JsonTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0006_final_seeds")]

    operations = [
        step(
            [
                """
CREATE TABLE audit_logs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    timestamp TEXT NOT NULL,
    event_type TEXT NOT NULL,
    actor_id TEXT,
    target_id TEXT,
    permission TEXT,
    result TEXT NOT NULL,
    reason TEXT,
    metadata TEXT,
    trace_id TEXT
)""",
                "CREATE INDEX idx_audit_logs_timestamp ON audit_logs (timestamp)",
                "CREATE INDEX idx_audit_logs_actor_id ON audit_logs (actor_id)",
                "CREATE INDEX idx_audit_logs_event_type ON audit_logs (event_type)",
                "CREATE INDEX idx_audit_logs_trace_id ON audit_logs (trace_id)",
            ],
            ["DROP TABLE audit_logs"],
            [
                migrations.CreateModel(
                    "AuditLog",
                    [
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("timestamp", IsoTextField()),
                        ("event_type", models.TextField()),
                        ("actor_id", models.TextField(blank=True, null=True)),
                        ("target_id", models.TextField(blank=True, null=True)),
                        ("permission", models.TextField(blank=True, null=True)),
                        ("result", models.TextField()),
                        ("reason", models.TextField(blank=True, null=True)),
                        ("metadata", JsonTextField(blank=True, null=True)),
                        ("trace_id", models.TextField(blank=True, null=True)),
                    ],
                    {"db_table": "audit_logs", "managed": False},
                ),
            ],
        ),
    ]
