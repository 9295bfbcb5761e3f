"""Codes that a machine exchanges once for an agent's key: made by people, for ten minutes."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0052_calls_told_to_wait")]

    operations = [
        migrations.CreateModel(
            "ConnectCode",
            [
                ("code_hash", models.TextField(primary_key=True, serialize=False)),
                ("key_name", models.TextField()),
                ("agent_id", models.TextField(blank=True, null=True)),
                ("made_by", models.BigIntegerField()),
                ("created_at", IsoTextField()),
                ("expires_at", IsoTextField()),
                ("used_at", IsoTextField(blank=True, null=True)),
                ("used_from", models.TextField(blank=True, null=True)),
            ],
            {"db_table": "connect_codes"},
        ),
    ]
