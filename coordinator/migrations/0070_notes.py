"""Notes that people write to agents at work."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models import fields


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0069_push")]

    operations = [
        step(
            [
                """
CREATE TABLE session_notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    text TEXT NOT NULL,
    written_at TEXT NOT NULL,
    written_by TEXT NOT NULL,
    given_at TEXT,
    through TEXT,
    given_to TEXT,
    run_id TEXT,
    closed_at TEXT,
    why_closed TEXT
)""",
                "CREATE INDEX session_notes_of_session ON session_notes (session_id, id)",
                "CREATE INDEX session_notes_waiting ON session_notes (id)"
                " WHERE closed_at IS NULL AND given_at IS NULL",
            ],
            ["DROP TABLE session_notes"],
            [
                migrations.CreateModel(
                    name="Note",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "session",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="notes",
                                to="coordinator.session",
                            ),
                        ),
                        ("text", models.TextField()),
                        ("written_at", fields.IsoTextField()),
                        ("written_by", models.TextField()),
                        ("given_at", fields.IsoTextField(null=True)),
                        ("through", models.TextField(null=True)),
                        ("given_to", models.TextField(null=True)),
                        ("run_id", models.TextField(null=True)),
                        ("closed_at", fields.IsoTextField(null=True)),
                        ("why_closed", models.TextField(null=True)),
                    ],
                    options={"db_table": "session_notes"},
                ),
                migrations.AddIndex(
                    "note", models.Index(fields=["session", "id"], name="session_notes_of_session")
                ),
                migrations.AddIndex(
                    "note",
                    models.Index(
                        fields=["id"],
                        condition=models.Q(given_at__isnull=True, closed_at__isnull=True),
                        name="session_notes_waiting",
                    ),
                ),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
