"""A tool rule may be switched off, and a suggested rule dismissed for good."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers
from coordinator.models.fields import IsoTextField


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
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
