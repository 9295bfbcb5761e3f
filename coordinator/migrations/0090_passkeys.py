"""Passkeys, the challenges that browsers are given for them, and recovery codes."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0089_rules_in_terms"),
    ]

    operations = [
        migrations.CreateModel(
            name="Passkey",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("user_id", models.BigIntegerField(db_index=True)),
                ("name", models.TextField()),
                ("credential_id", models.TextField(unique=True)),
                ("public_key", models.TextField()),
                ("user_handle", models.TextField()),
                ("rp_id", models.TextField()),
                ("sign_count", models.BigIntegerField()),
                ("made_at", IsoTextField()),
                ("last_used_at", IsoTextField(blank=True, null=True)),
            ],
            options={
                "db_table": "passkeys",
            },
        ),
        migrations.CreateModel(
            name="PasskeyChallenge",
            fields=[
                ("digest", models.TextField(primary_key=True, serialize=False)),
                (
                    "purpose",
                    models.TextField(
                        choices=[
                            ("add", "Add a passkey"),
                            ("sign in", "Sign in"),
                            ("confirm", "Confirm that it is you"),
                        ]
                    ),
                ),
                ("user_id", models.BigIntegerField(blank=True, null=True)),
                ("browser", models.TextField()),
                ("source", models.TextField()),
                ("expires_at", IsoTextField()),
            ],
            options={
                "db_table": "passkey_challenges",
            },
        ),
        migrations.CreateModel(
            name="RecoveryCode",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("user_id", models.BigIntegerField(db_index=True)),
                ("code_hash", models.TextField(unique=True)),
                ("made_at", IsoTextField()),
                ("used_at", IsoTextField(blank=True, null=True)),
            ],
            options={
                "db_table": "recovery_codes",
            },
        ),
    ]
