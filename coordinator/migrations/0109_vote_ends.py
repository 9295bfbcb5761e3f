"""Until when a person approved who wrote a time of their own, kept with their vote."""

from __future__ import annotations

from django.db import migrations

from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0108_transcript_senders")]
    operations = [
        migrations.AddField("permissionvote", "until", IsoTextField(null=True, blank=True)),
    ]
