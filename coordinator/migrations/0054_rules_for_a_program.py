"""A tool rule may name the agent program whose calls it is for."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from coordinator.feed import triggers
from coordinator.migrations._sql import step


def remove_triggers(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Take the feed's triggers down: no column is dropped that one of them names. They come back after migrating."""
    triggers.drop_feed_triggers(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0053_connect_codes")]

    operations = [
        step(
            ["ALTER TABLE tool_rules ADD COLUMN program TEXT NOT NULL DEFAULT ''"],
            ["ALTER TABLE tool_rules DROP COLUMN program"],
            [
                migrations.AddField(
                    "toolrule", "program", models.TextField(blank=True, db_default="", default="")
                )
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_triggers),
    ]
