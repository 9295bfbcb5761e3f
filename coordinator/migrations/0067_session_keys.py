"""The keys by which driven agents call the MCP gateway: one for each agent's process."""

from __future__ import annotations

from django.db import migrations, models

import coordinator.models.fields


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0066_triage")]

    operations = [
        migrations.CreateModel(
            name="SessionKey",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("key_hash", models.TextField(unique=True)),
                ("session_id", models.TextField()),
                ("agent_id", models.TextField()),
                ("runner_id", models.TextField()),
                ("created_at", coordinator.models.fields.IsoTextField()),
                ("expires_at", coordinator.models.fields.IsoTextField()),
            ],
            options={
                "db_table": "session_keys",
                "indexes": [models.Index(fields=["session_id"], name="sbx_session_keys_session")],
            },
        ),
    ]
