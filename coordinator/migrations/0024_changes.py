"""The feed's table. Its triggers are kept by coordinator.feed.triggers, which puts them up after every migrate."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models.fields import MsField


def nothing(apps: Any, schema_editor: Any) -> None:
    """Leave it to post_migrate to put the triggers up."""


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0023_keys")]

    operations = [
        step(
            [
                """
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    topic TEXT NOT NULL,
    key TEXT NOT NULL,
    parent TEXT,
    op TEXT NOT NULL CHECK (op IN ('insert', 'update', 'delete'))
)""",
            ],
            ["DROP TABLE changes"],
            [
                migrations.CreateModel(
                    "Change",
                    [
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("at", MsField()),
                        ("topic", models.TextField()),
                        ("key", models.TextField()),
                        ("parent", models.TextField(blank=True, null=True)),
                        ("op", models.TextField()),
                    ],
                    {"db_table": "changes"},
                ),
            ],
        ),
        migrations.RunPython(nothing, remove_feed_triggers),
    ]
