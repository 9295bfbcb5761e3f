"""Hosts in results of MCP servers, so that an address not seen before can be marked."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

import coordinator.models.fields
from coordinator.feed import triggers


def remove_triggers(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Take the feed's triggers down: no column is dropped that one of them names. They come back after migrating."""
    triggers.drop_feed_triggers(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0110_result_cache"),
    ]

    operations = [
        migrations.CreateModel(
            name="McpHostLearning",
            fields=[
                ("server_id", models.TextField(primary_key=True, serialize=False)),
                ("results", models.IntegerField()),
                ("started_at", coordinator.models.fields.IsoTextField()),
            ],
            options={
                "verbose_name": "learning of hosts",
                "verbose_name_plural": "learning of hosts",
                "db_table": "mcp_host_learning",
            },
        ),
        migrations.AddField(
            model_name="mcpcalllimit",
            name="marks_addresses",
            field=models.BooleanField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="McpResultHost",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("server_id", models.TextField()),
                ("host", models.TextField()),
                ("session_id", models.TextField()),
                ("seen_at", coordinator.models.fields.IsoTextField()),
            ],
            options={
                "verbose_name": "host in MCP results",
                "verbose_name_plural": "hosts in MCP results",
                "db_table": "mcp_result_hosts",
                "indexes": [
                    models.Index(fields=["server_id", "seen_at"], name="sbx_mcp_result_hosts_seen"),
                    models.Index(fields=["session_id", "host"], name="sbx_mcp_result_hosts_session"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("server_id", "host"), name="sbx_mcp_result_hosts_host")
                ],
            },
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_triggers),
    ]
