"""What a permission request has no column for, and the votes of requests that take two people."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models import fields


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0027_leases_and_idempotency")]

    operations = [
        step(
            [
                """
CREATE TABLE permission_context (
    request_id TEXT NOT NULL PRIMARY KEY REFERENCES permission_requests (request_id) ON DELETE CASCADE,
    requested_by TEXT NOT NULL,
    owner TEXT,
    session_id TEXT,
    agent_id TEXT,
    event_id INTEGER,
    tool_name TEXT,
    tool_input TEXT,
    subject_key TEXT NOT NULL,
    pending_key TEXT UNIQUE,
    idempotency_key TEXT UNIQUE,
    deadline TEXT,
    needed INTEGER NOT NULL DEFAULT 1,
    validity TEXT,
    reason TEXT,
    granted BOOLEAN NOT NULL DEFAULT 0,
    closed_at TEXT,
    closed_by TEXT,
    revoked_at TEXT,
    revoked_by TEXT,
    revoke_reason TEXT,
    seen_at TEXT,
    seen_by TEXT
)""",
                # A session's timeline shows what was asked in it.
                "CREATE INDEX sbx_permission_context_session ON permission_context (session_id)",
                """
CREATE TABLE permission_votes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL REFERENCES permission_requests (request_id) ON DELETE CASCADE,
    voter TEXT NOT NULL,
    validity TEXT NOT NULL,
    reason TEXT,
    wants_grant BOOLEAN NOT NULL DEFAULT 0,
    at TEXT NOT NULL,
    CONSTRAINT permission_votes_once UNIQUE (request_id, voter)
)""",
            ],
            ["DROP TABLE permission_votes", "DROP TABLE permission_context"],
            [
                migrations.CreateModel(
                    name="PermissionContext",
                    fields=[
                        (
                            "request",
                            models.OneToOneField(
                                db_column="request_id",
                                on_delete=models.DO_NOTHING,
                                primary_key=True,
                                related_name="context",
                                serialize=False,
                                to="coordinator.permissionrequest",
                                to_field="request_id",
                            ),
                        ),
                        ("requested_by", models.TextField()),
                        ("owner", models.TextField(blank=True, null=True)),
                        ("session_id", models.TextField(blank=True, null=True)),
                        ("agent_id", models.TextField(blank=True, null=True)),
                        ("event_id", models.BigIntegerField(blank=True, null=True)),
                        ("tool_name", models.TextField(blank=True, null=True)),
                        ("tool_input", fields.JsonTextField(blank=True, null=True)),
                        ("subject_key", models.TextField()),
                        ("pending_key", models.TextField(blank=True, null=True, unique=True)),
                        ("idempotency_key", models.TextField(blank=True, null=True, unique=True)),
                        ("deadline", fields.IsoTextField(blank=True, null=True)),
                        ("needed", models.IntegerField(db_default=1, default=1)),
                        ("validity", models.TextField(blank=True, null=True)),
                        ("reason", models.TextField(blank=True, null=True)),
                        ("granted", models.BooleanField(db_default=False, default=False)),
                        ("closed_at", fields.IsoTextField(blank=True, null=True)),
                        ("closed_by", models.TextField(blank=True, null=True)),
                        ("revoked_at", fields.IsoTextField(blank=True, null=True)),
                        ("revoked_by", models.TextField(blank=True, null=True)),
                        ("revoke_reason", models.TextField(blank=True, null=True)),
                        ("seen_at", fields.IsoTextField(blank=True, null=True)),
                        ("seen_by", models.TextField(blank=True, null=True)),
                    ],
                    options={
                        "db_table": "permission_context",
                    },
                ),
                migrations.CreateModel(
                    name="PermissionVote",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("voter", models.TextField()),
                        ("validity", models.TextField()),
                        ("reason", models.TextField(blank=True, null=True)),
                        ("wants_grant", models.BooleanField(db_default=False, default=False)),
                        ("at", fields.IsoTextField()),
                        (
                            "request",
                            models.ForeignKey(
                                db_column="request_id",
                                db_index=False,
                                on_delete=models.DO_NOTHING,
                                related_name="votes",
                                to="coordinator.permissionrequest",
                                to_field="request_id",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "permission_votes",
                        "constraints": [
                            models.UniqueConstraint(fields=("request", "voter"), name="permission_votes_once")
                        ],
                    },
                ),
            ],
        ),
    ]
