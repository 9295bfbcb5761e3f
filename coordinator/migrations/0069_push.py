"""Devices that take push messages, and the key that they are sent with."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0068_accepted_commands")]

    operations = [
        migrations.CreateModel(
            name="PushKey",
            fields=[
                ("id", models.BigIntegerField(default=1, primary_key=True, serialize=False)),
                ("public_key", models.TextField()),
                ("private_key", models.TextField()),
                ("made_at", IsoTextField()),
            ],
            options={"db_table": "push_keys"},
        ),
        step(
            [
                """
CREATE TABLE push_subscriptions (
    target_id INTEGER NOT NULL PRIMARY KEY REFERENCES notification_targets (id) ON DELETE CASCADE,
    device TEXT NOT NULL,
    keys TEXT NOT NULL,
    sign_in TEXT NOT NULL,
    ended_at TEXT,
    why_ended TEXT
)"""
            ],
            ["DROP TABLE push_subscriptions"],
            [
                migrations.CreateModel(
                    name="PushSubscription",
                    fields=[
                        (
                            "target",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="push",
                                serialize=False,
                                to="coordinator.notificationtarget",
                            ),
                        ),
                        ("device", models.TextField()),
                        ("keys", models.TextField()),
                        ("sign_in", models.TextField()),
                        ("ended_at", IsoTextField(blank=True, null=True)),
                        ("why_ended", models.TextField(blank=True, null=True)),
                    ],
                    options={"db_table": "push_subscriptions"},
                ),
            ],
        ),
    ]
