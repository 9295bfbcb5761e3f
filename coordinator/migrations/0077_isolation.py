"""How a started MCP server is isolated: its network, its folders, and whether an admin switched isolation off."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from coordinator.feed import triggers
from coordinator.models.fields import JsonTextField

NETWORKS = [
    ("none", "No network"),
    ("machine", "Everything that this machine reaches"),
]


def remove_triggers(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Remove the feed's triggers, which name the columns, before these go. They come back after migrating."""
    triggers.drop_feed_triggers(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0076_bound_keys")]

    operations = [
        migrations.AddField(
            "mcpupstream", "network", models.TextField(choices=NETWORKS, db_default="none", default="none")
        ),
        migrations.AddField("mcpupstream", "folders", JsonTextField(blank=True, null=True)),
        migrations.AddField("mcpupstream", "writable_folders", JsonTextField(blank=True, null=True)),
        migrations.AddField(
            "mcpupstream", "is_isolation_off", models.BooleanField(db_default=False, default=False)
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_triggers),
    ]
