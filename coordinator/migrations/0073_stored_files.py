"""Where attached files lie, and by what their bytes are known again."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0072_events_in_parts")]

    operations = [
        step(
            [
                """
CREATE TABLE stored_files (
    attachment_id TEXT PRIMARY KEY REFERENCES chat_attachments (id) ON DELETE CASCADE,
    place TEXT NOT NULL CHECK (place IN ('folder', 's3')),
    size_bytes INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    pieces BLOB NOT NULL,
    proven TEXT NOT NULL DEFAULT ''
)""",
            ],
            ["DROP TABLE stored_files"],
            [
                migrations.CreateModel(
                    name="StoredFile",
                    fields=[
                        (
                            "attachment",
                            models.OneToOneField(
                                db_column="attachment_id",
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="stored",
                                serialize=False,
                                to="coordinator.chatattachment",
                            ),
                        ),
                        ("place", models.TextField()),
                        ("size_bytes", models.BigIntegerField()),
                        ("sha256", models.TextField()),
                        ("pieces", models.BinaryField()),
                        ("proven", models.TextField(db_default="", default="")),
                    ],
                    options={"db_table": "stored_files"},
                ),
            ],
        ),
    ]
