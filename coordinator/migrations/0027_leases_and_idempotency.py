"""Leases between workers, and answers kept for resends (ours; plain Django operations)."""

from __future__ import annotations

from django.db import migrations, models

import coordinator.models.fields


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0026_runners_and_blueprints")]

    operations = [
        migrations.CreateModel(
            name="Lease",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("holder", models.TextField()),
                ("until", coordinator.models.fields.MsField()),
            ],
            options={"db_table": "leases"},
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                ("key_hash", models.TextField(primary_key=True, serialize=False)),
                ("fingerprint", models.TextField()),
                ("answer", models.TextField()),
                ("created_at", coordinator.models.fields.IsoTextField(db_index=True)),
            ],
            options={"db_table": "idempotency_keys"},
        ),
    ]
