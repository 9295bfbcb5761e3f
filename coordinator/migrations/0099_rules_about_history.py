"""Rules about repeated calls and new hosts, and the hosts that people approved."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from coordinator.feed import triggers
from coordinator.models.fields import IsoTextField


def remove_triggers(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Take the feed's triggers down: no column is dropped that one of them names. They come back after migrating."""
    triggers.drop_feed_triggers(schema_editor.connection)


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
        migrations.RunPython(migrations.RunPython.noop, remove_triggers),
    ]
