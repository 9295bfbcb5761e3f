"""What each session is about, in a few words, and how far housekeeping has come with making them.

`sbx_title_progress` has one row: the change up to which sessions were looked at (`followed`), and the session up to
which those that were here before have a title (`swept`, by id; NULL once all have).
"""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models import fields


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0048_imported_places")]

    operations = [
        step(
            [
                """
CREATE TABLE session_titles (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    title TEXT NOT NULL,
    source TEXT NOT NULL,
    settled BOOLEAN NOT NULL DEFAULT 0,
    set_by TEXT,
    set_at TEXT NOT NULL
)""",
                """
CREATE TABLE sbx_title_progress (
    id INTEGER NOT NULL PRIMARY KEY,
    followed INTEGER NOT NULL DEFAULT 0,
    swept TEXT
)""",
                "INSERT INTO sbx_title_progress (id, followed, swept) SELECT 1, coalesce(max(id), 0), '' FROM changes",
            ],
            ["DROP TABLE sbx_title_progress", "DROP TABLE session_titles"],
            [
                migrations.CreateModel(
                    name="SessionTitle",
                    fields=[
                        (
                            "session",
                            models.OneToOneField(
                                db_column="session_id",
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="own_title",
                                serialize=False,
                                to="coordinator.session",
                            ),
                        ),
                        ("title", models.TextField()),
                        ("source", models.TextField()),
                        ("settled", models.BooleanField(db_default=False, default=False)),
                        ("set_by", models.TextField(blank=True, null=True)),
                        ("set_at", fields.IsoTextField()),
                    ],
                    options={"db_table": "session_titles"},
                ),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
