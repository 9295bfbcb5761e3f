"""A tool rule may be switched off, and a suggested rule dismissed for good."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from coordinator.feed import triggers
from coordinator.models.fields import IsoTextField


def remove_triggers(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Take the feed's triggers down: no column is dropped that one of them names. They come back after migrating."""
    triggers.drop_feed_triggers(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0091_invitations")]

    operations = [
        migrations.AddField("toolrule", "is_off", models.BooleanField(db_default=False, default=False)),
        migrations.CreateModel(
            name="DismissedSuggestion",
            fields=[
                ("digest", models.TextField(primary_key=True, serialize=False)),
                ("label", models.TextField()),
                ("dismissed_by", models.TextField()),
                ("dismissed_at", IsoTextField()),
            ],
            options={"db_table": "dismissed_suggestions"},
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_triggers),
    ]
