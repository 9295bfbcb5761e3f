"""What a person declined of a changed tool: agents are shown the accepted definition instead."""

from __future__ import annotations

from django.db import migrations, models

import coordinator.models.fields
from coordinator.migrations._sql import remove_feed_triggers


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
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
