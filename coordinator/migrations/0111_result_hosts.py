"""Hosts in results of MCP servers, so that an address not seen before can be marked."""

from __future__ import annotations

from django.db import migrations, models

import coordinator.models.fields
from coordinator.migrations._sql import remove_feed_triggers


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
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
