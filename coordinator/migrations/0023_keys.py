"""API keys and the token of the set-up link: tables of our own, made by Django alone."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.models.fields import IsoTextField, JsonTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0022_event_context")]

    operations = [
        migrations.CreateModel(
            "ApiKey",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.TextField(unique=True)),
                ("prefix", models.TextField()),
                ("key_hash", models.TextField(unique=True)),
                ("scopes", JsonTextField()),
                ("agent_id", models.TextField(blank=True, null=True)),
                ("created_at", IsoTextField()),
                ("created_by", models.TextField(blank=True, null=True)),
                ("expires_at", IsoTextField(blank=True, null=True)),
                ("last_used_at", IsoTextField(blank=True, null=True)),
                ("revoked_at", IsoTextField(blank=True, null=True)),
            ],
            {"db_table": "api_keys", "verbose_name": "API key"},
        ),
        migrations.CreateModel(
            "SetupToken",
            [
                ("token_hash", models.TextField(primary_key=True, serialize=False)),
                ("created_at", IsoTextField()),
                ("used_at", IsoTextField(blank=True, null=True)),
            ],
            {"db_table": "setup_tokens"},
        ),
    ]
