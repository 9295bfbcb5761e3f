"""Where people want to hear that a request waits, and the log of what was sent."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0031_session_indexes")]

    operations = [
        step(
            [
                """
CREATE TABLE notification_targets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    person TEXT NOT NULL,
    kind TEXT NOT NULL,
    address TEXT NOT NULL,
    secret TEXT,
    created_at TEXT NOT NULL,
    CONSTRAINT notification_targets_once UNIQUE (person, kind, address)
)""",
                """
CREATE TABLE notification_log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    target_id INTEGER NOT NULL REFERENCES notification_targets (id) ON DELETE CASCADE,
    request_id TEXT NOT NULL,
    created_at TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at TEXT,
    sent_at TEXT,
    outcome TEXT
)""",
                # The sender looks every second for what is due.
                "CREATE INDEX sbx_notification_log_due ON notification_log (state, next_at)",
                "CREATE INDEX sbx_notification_log_target ON notification_log (target_id, id)",
            ],
            ["DROP TABLE notification_log", "DROP TABLE notification_targets"],
            [
                migrations.CreateModel(
                    "NotificationTarget",
                    [
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("person", models.TextField()),
                        ("kind", models.TextField()),
                        ("address", models.TextField()),
                        ("secret", models.TextField(blank=True, null=True)),
                        ("created_at", IsoTextField()),
                    ],
                    {
                        "db_table": "notification_targets",
                        "constraints": [
                            models.UniqueConstraint(
                                fields=["person", "kind", "address"], name="notification_targets_once"
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    "Notification",
                    [
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("request_id", models.TextField()),
                        ("created_at", IsoTextField()),
                        ("state", models.TextField(db_default="waiting", default="waiting")),
                        ("attempts", models.IntegerField(db_default=0, default=0)),
                        ("next_at", IsoTextField(blank=True, null=True)),
                        ("sent_at", IsoTextField(blank=True, null=True)),
                        ("outcome", models.TextField(blank=True, null=True)),
                        (
                            "target",
                            models.ForeignKey(
                                "coordinator.notificationtarget",
                                models.DO_NOTHING,
                                db_index=False,
                                related_name="notifications",
                            ),
                        ),
                    ],
                    {"db_table": "notification_log"},
                ),
            ],
        ),
    ]
