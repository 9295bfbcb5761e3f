"""How processes of stdio servers are, as their host tells it."""

from __future__ import annotations

from django.db import migrations, models

import coordinator.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0062_session_changes"),
    ]

    operations = [
        migrations.CreateModel(
            name="McpProcess",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("server_id", models.TextField()),
                ("caller", models.TextField()),
                ("state", models.TextField()),
                ("pid", models.BigIntegerField(null=True)),
                ("starts", models.BigIntegerField()),
                ("failures", models.BigIntegerField()),
                ("last_words", models.TextField()),
                ("since", coordinator.models.fields.IsoTextField()),
            ],
            options={
                "db_table": "mcp_processes",
                "constraints": [
                    models.UniqueConstraint(fields=("server_id", "caller"), name="sbx_mcp_processes_place")
                ],
            },
        ),
    ]
