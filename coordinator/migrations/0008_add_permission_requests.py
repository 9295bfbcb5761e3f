"""What agents ask people for."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField, JsonTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0007_add_audit_logs")]

    operations = [
        step(
            [
                """
CREATE TABLE permission_requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL,
    plugin_id TEXT NOT NULL,
    permission_type TEXT NOT NULL,
    target_resource TEXT,
    justification TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending',
    approved_by TEXT,
    approved_at TEXT,
    expires_at TEXT,
    metadata TEXT
)""",
                "CREATE INDEX idx_permission_requests_status ON permission_requests (status)",
                "CREATE INDEX idx_permission_requests_plugin_id ON permission_requests (plugin_id)",
                "CREATE INDEX idx_permission_requests_created_at ON permission_requests (created_at)",
                # The UNIQUE above serves the same look-ups; the document lists an index of its own.
                "CREATE INDEX idx_permission_requests_request_id ON permission_requests (request_id)",
            ],
            ["DROP TABLE permission_requests"],
            [
                migrations.CreateModel(
                    "PermissionRequest",
                    [
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("request_id", models.TextField(unique=True)),
                        ("created_at", IsoTextField()),
                        ("plugin_id", models.TextField()),
                        ("permission_type", models.TextField()),
                        ("target_resource", models.TextField(blank=True, null=True)),
                        ("justification", models.TextField()),
                        ("status", models.TextField(db_default="pending", default="pending")),
                        ("approved_by", models.TextField(blank=True, null=True)),
                        ("approved_at", IsoTextField(blank=True, null=True)),
                        ("expires_at", IsoTextField(blank=True, null=True)),
                        ("metadata", JsonTextField(blank=True, null=True)),
                    ],
                    {"db_table": "permission_requests"},
                ),
            ],
        ),
    ]
