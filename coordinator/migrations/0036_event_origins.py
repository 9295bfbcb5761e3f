"""What an event was made of, what else its teller said, and messages that come in pieces."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models import fields


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0035_chat_reading")]

    operations = [
        step(
            [
                "ALTER TABLE event_context ADD COLUMN extra TEXT",
                """
CREATE TABLE event_origins (
    key TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    until INTEGER
)""",
                # A deleted session takes its origins along without a look at every row.
                "CREATE INDEX sbx_event_origins_session ON event_origins (session_id)",
                "CREATE INDEX sbx_event_origins_until ON event_origins (until) WHERE until IS NOT NULL",
                """
CREATE TABLE message_parts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    message_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    text TEXT NOT NULL,
    CONSTRAINT message_parts_place UNIQUE (session_id, message_id, place)
)""",
            ],
            [
                "DROP TABLE message_parts",
                "DROP TABLE event_origins",
                "ALTER TABLE event_context DROP COLUMN extra",
            ],
            [
                migrations.AddField("eventcontext", "extra", fields.JsonTextField(blank=True, null=True)),
                migrations.CreateModel(
                    name="EventOrigin",
                    fields=[
                        ("key", models.TextField(primary_key=True, serialize=False)),
                        (
                            "session",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=models.DO_NOTHING,
                                related_name="+",
                                to="coordinator.session",
                            ),
                        ),
                        ("until", fields.MsField(blank=True, null=True)),
                    ],
                    options={"db_table": "event_origins"},
                ),
                migrations.CreateModel(
                    name="MessagePart",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "session",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=models.DO_NOTHING,
                                related_name="+",
                                to="coordinator.session",
                            ),
                        ),
                        ("message_id", models.TextField()),
                        ("place", models.BigIntegerField()),
                        ("text", models.TextField()),
                    ],
                    options={
                        "db_table": "message_parts",
                        "constraints": [
                            models.UniqueConstraint(
                                fields=("session", "message_id", "place"), name="message_parts_place"
                            )
                        ],
                    },
                ),
            ],
        ),
    ]
