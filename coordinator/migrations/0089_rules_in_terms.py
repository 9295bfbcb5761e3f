"""A tool rule may say in terms what a call does: what it runs, which paths it touches, which hosts it reaches."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step

COLUMNS = ("runs", "touches", "reaches", "unreadable", "ready_made")


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0088_delivery_jobs")]

    operations = [
        step(
            [f"ALTER TABLE tool_rules ADD COLUMN {name} TEXT NOT NULL DEFAULT ''" for name in COLUMNS],
            [f"ALTER TABLE tool_rules DROP COLUMN {name}" for name in reversed(COLUMNS)],
            [
                migrations.AddField("toolrule", name, models.TextField(blank=True, db_default="", default=""))
                for name in COLUMNS
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
