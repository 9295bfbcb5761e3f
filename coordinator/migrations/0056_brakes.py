"""Brakes: people hold everything, an agent or a host, until they release it."""

from __future__ import annotations

from django.db import migrations, models

import coordinator.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0055_sessions_of_touches"),
    ]

    operations = [
        migrations.CreateModel(
            name="Brake",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "reach",
                    models.TextField(
                        choices=[("everything", "Everything"), ("agent", "One agent"), ("host", "One host")]
                    ),
                ),
                ("name", models.TextField(blank=True, db_default="", default="")),
                ("reason", models.TextField(blank=True, db_default="", default="")),
                ("set_at", coordinator.models.fields.IsoTextField()),
                ("set_by", models.TextField()),
                ("released_at", coordinator.models.fields.IsoTextField(blank=True, null=True)),
                ("released_by", models.TextField(blank=True, null=True)),
            ],
            options={
                "db_table": "brakes",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("released_at__isnull", True)),
                        fields=("reach", "name"),
                        name="one_brake_in_force",
                    )
                ],
            },
        ),
    ]
