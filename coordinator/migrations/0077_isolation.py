"""How a started MCP server is isolated: its network, its folders, and whether an admin switched isolation off."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers
from coordinator.models.fields import JsonTextField

NETWORKS = [
    ("none", "No network"),
    ("machine", "Everything that this machine reaches"),
]


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
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
