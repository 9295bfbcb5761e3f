"""Invitations by which people make their own accounts, and the hints that each person has put away."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0090_passkeys"),
    ]

    operations = [
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("token_hash", models.TextField(unique=True)),
                ("label", models.TextField(blank=True)),
                ("role", models.TextField()),
                ("made_by", models.BigIntegerField()),
                ("made_at", IsoTextField()),
                ("expires_at", IsoTextField()),
                ("used_at", IsoTextField(blank=True, null=True)),
                ("used_by", models.BigIntegerField(blank=True, null=True)),
                ("revoked_at", IsoTextField(blank=True, null=True)),
            ],
            options={
                "db_table": "invitations",
            },
        ),
        migrations.CreateModel(
            name="DismissedHint",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("user_id", models.BigIntegerField()),
                ("name", models.TextField()),
                ("dismissed_at", IsoTextField()),
            ],
            options={
                "db_table": "dismissed_hints",
                "constraints": [
                    models.UniqueConstraint(fields=["user_id", "name"], name="sbx_dismissed_hints_once")
                ],
            },
        ),
    ]
