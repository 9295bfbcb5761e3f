"""How many bytes of events each key has stored a day."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0077_isolation")]

    operations = [
        migrations.CreateModel(
            name="KeyStorageDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("key_id", models.BigIntegerField()),
                ("day", models.TextField()),
                ("bytes", models.BigIntegerField()),
            ],
            options={
                "db_table": "key_storage_days",
                "constraints": [
                    models.UniqueConstraint(fields=("key_id", "day"), name="sbx_key_storage_days_once")
                ],
            },
        ),
    ]
