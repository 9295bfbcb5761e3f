"""Results of read-only tools that are answered again, and for how long."""

from __future__ import annotations

from django.db import migrations, models

import coordinator.models.fields
from coordinator.migrations._sql import remove_feed_triggers


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0109_vote_ends"),
    ]

    operations = [
        migrations.AddField(
            model_name="mcpcalllimit",
            name="cache_seconds",
            field=models.IntegerField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="CachedResult",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("key", models.TextField(unique=True)),
                ("scope", models.TextField()),
                ("server_id", models.TextField()),
                ("tool_name", models.TextField()),
                ("agent_id", models.TextField()),
                ("content", models.TextField()),
                ("answered_at", coordinator.models.fields.IsoTextField()),
                ("expires_at", coordinator.models.fields.IsoTextField()),
            ],
            options={
                "verbose_name": "cached result",
                "db_table": "mcp_cached_results",
                "indexes": [
                    models.Index(fields=["server_id", "answered_at"], name="sbx_mcp_cached_results_server")
                ],
            },
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
