"""A tool rule may name the agent program whose calls it is for."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step


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
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
