"""What a person declined of a changed tool: agents are shown the accepted definition instead."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

import coordinator.models.fields
from coordinator.feed import triggers


def remove_triggers(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Remove the feed's triggers, which name the columns, before these go. They come back after migrating."""
    triggers.drop_feed_triggers(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0083_grades_of_marks"),
    ]

    operations = [
        migrations.AddField(
            model_name="mcptool",
            name="declined_at",
            field=coordinator.models.fields.IsoTextField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="mcptool",
            name="declined_by",
            field=models.TextField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="mcptool",
            name="declined_hash",
            field=models.TextField(blank=True, null=True),
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_triggers),
    ]
