"""What driven sessions changed in their work trees, turn by turn and as a whole."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models import fields


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0061_gateway")]

    operations = [
        step(
            [
                """
CREATE TABLE session_changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    run_id TEXT NOT NULL,
    base TEXT,
    told_at TEXT NOT NULL,
    files TEXT NOT NULL,
    diff TEXT,
    truncated BOOLEAN NOT NULL DEFAULT 0,
    problem TEXT,
    CONSTRAINT session_changes_of_a_turn UNIQUE (session_id, run_id)
)""",
            ],
            ["DROP TABLE session_changes"],
            [
                migrations.CreateModel(
                    name="SessionChange",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "session",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="session_changes",
                                to="coordinator.session",
                            ),
                        ),
                        ("run_id", models.TextField()),
                        ("base", models.TextField(null=True)),
                        ("told_at", fields.IsoTextField()),
                        ("files", fields.JsonTextField()),
                        ("diff", models.TextField(null=True)),
                        ("truncated", models.BooleanField(db_default=False, default=False)),
                        ("problem", models.TextField(null=True)),
                    ],
                    options={"db_table": "session_changes"},
                ),
                migrations.AddConstraint(
                    "sessionchange",
                    models.UniqueConstraint(fields=["session", "run_id"], name="session_changes_of_a_turn"),
                ),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
