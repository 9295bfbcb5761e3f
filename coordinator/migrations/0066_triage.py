"""Who takes a waiting request, and who looks at it later."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models import fields


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0065_reach")]

    operations = [
        step(
            [
                """
CREATE TABLE request_assignments (
    request_id TEXT NOT NULL PRIMARY KEY REFERENCES permission_requests (request_id) ON DELETE CASCADE,
    person TEXT NOT NULL,
    assigned_by TEXT NOT NULL,
    at TEXT NOT NULL
)""",
                """
CREATE TABLE request_snoozes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL REFERENCES permission_requests (request_id) ON DELETE CASCADE,
    person TEXT NOT NULL,
    until TEXT NOT NULL,
    CONSTRAINT request_snoozes_once UNIQUE (request_id, person)
)""",
                "CREATE INDEX sbx_request_snoozes_person ON request_snoozes (person)",
            ],
            ["DROP TABLE request_snoozes", "DROP TABLE request_assignments"],
            [
                migrations.CreateModel(
                    name="RequestAssignment",
                    fields=[
                        (
                            "request",
                            models.OneToOneField(
                                db_column="request_id",
                                on_delete=models.DO_NOTHING,
                                primary_key=True,
                                related_name="assignment",
                                serialize=False,
                                to="coordinator.permissionrequest",
                                to_field="request_id",
                            ),
                        ),
                        ("person", models.TextField()),
                        ("assigned_by", models.TextField()),
                        ("at", fields.IsoTextField()),
                    ],
                    options={"db_table": "request_assignments"},
                ),
                migrations.CreateModel(
                    name="RequestSnooze",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "request",
                            models.ForeignKey(
                                db_column="request_id",
                                db_index=False,
                                on_delete=models.DO_NOTHING,
                                related_name="snoozes",
                                to="coordinator.permissionrequest",
                                to_field="request_id",
                            ),
                        ),
                        ("person", models.TextField()),
                        ("until", fields.IsoTextField()),
                    ],
                    options={
                        "db_table": "request_snoozes",
                        "constraints": [
                            models.UniqueConstraint(fields=("request", "person"), name="request_snoozes_once")
                        ],
                    },
                ),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
