"""Rules about repeated calls and new hosts, and the hosts that people approved."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers
from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0098_activity_hours")]

    operations = [
        migrations.AddField("toolrule", "repeats", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField("toolrule", "stops_turn", models.BooleanField(db_default=False, default=False)),
        migrations.CreateModel(
            name="KnownHost",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("folder", models.TextField()),
                ("host", models.TextField()),
                ("request_id", models.TextField()),
                ("approved_by", models.TextField()),
                ("approved_at", IsoTextField()),
            ],
            options={
                "db_table": "known_hosts",
                "constraints": [models.UniqueConstraint(fields=["folder", "host"], name="known_hosts_once")],
                "indexes": [models.Index(fields=["request_id"], name="known_hosts_request")],
            },
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
