"""Whose sessions and runners are, by key, and runs that are held until a person releases them."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models import fields


def nothing(apps: Any, schema_editor: Any) -> None:
    """Forwards there is nothing to do: the triggers are put up anew after every migrate."""


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0041_masked_secrets")]

    operations = [
        migrations.AddField(
            "runner",
            "registered_by",
            models.TextField(help_text="The key that it registered with; no other speaks for it.", null=True),
        ),
        step(
            [
                """
CREATE TABLE session_writers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    writer TEXT NOT NULL,
    is_runner BOOLEAN NOT NULL DEFAULT 0,
    CONSTRAINT session_writers_once UNIQUE (session_id, writer)
)""",
                "CREATE INDEX sbx_session_writers_writer ON session_writers (writer)",
                """
CREATE TABLE held_runs (
    run_id TEXT NOT NULL PRIMARY KEY REFERENCES runs (run_id) ON DELETE CASCADE,
    since TEXT NOT NULL,
    why TEXT NOT NULL
)""",
            ],
            ["DROP TABLE held_runs", "DROP TABLE session_writers"],
            [
                migrations.CreateModel(
                    name="SessionWriter",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "session",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="writers",
                                to="coordinator.session",
                            ),
                        ),
                        ("writer", models.TextField()),
                        ("is_runner", models.BooleanField(db_default=False, default=False)),
                    ],
                    options={
                        "db_table": "session_writers",
                        "constraints": [
                            models.UniqueConstraint(fields=("session", "writer"), name="session_writers_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="HeldRun",
                    fields=[
                        (
                            "run",
                            models.OneToOneField(
                                db_column="run_id",
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="hold",
                                serialize=False,
                                to="coordinator.run",
                            ),
                        ),
                        ("since", fields.IsoTextField()),
                        ("why", models.TextField()),
                    ],
                    options={"db_table": "held_runs"},
                ),
            ],
        ),
        migrations.RunPython(nothing, remove_feed_triggers),
    ]
