"""How many calls of a session ran without a guard, and who is notified of them."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0095_shown_tools")]

    operations = [
        step(
            [
                """
CREATE TABLE session_guards (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    unguarded INTEGER NOT NULL DEFAULT 0,
    without_hook INTEGER NOT NULL DEFAULT 0,
    mode TEXT,
    counted_at TEXT NOT NULL,
    reported_at TEXT
)""",
                "CREATE INDEX session_guards_unguarded ON session_guards (session_id) WHERE unguarded > 0",
            ],
            ["DROP TABLE session_guards"],
            [
                migrations.CreateModel(
                    name="SessionGuard",
                    fields=[
                        (
                            "session",
                            models.OneToOneField(
                                db_column="session_id",
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="guard",
                                serialize=False,
                                to="coordinator.session",
                            ),
                        ),
                        ("unguarded", models.BigIntegerField(db_default=0, default=0)),
                        ("without_hook", models.BigIntegerField(db_default=0, default=0)),
                        ("mode", models.TextField(blank=True, null=True)),
                        ("counted_at", IsoTextField()),
                        ("reported_at", IsoTextField(blank=True, null=True)),
                    ],
                    options={"db_table": "session_guards"},
                ),
            ],
        ),
        migrations.CreateModel(
            name="NotificationChoice",
            fields=[
                ("person", models.TextField(primary_key=True, serialize=False)),
                ("unguarded", models.BooleanField(db_default=True, default=True)),
            ],
            options={"db_table": "notification_choices"},
        ),
    ]
