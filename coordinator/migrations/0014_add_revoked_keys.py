"""Keys that stay refused for ever."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import MsField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0013_add_runtime_plugins")]

    operations = [
        step(
            ["CREATE TABLE revoked_keys (key_hash TEXT PRIMARY KEY, revoked_at INTEGER NOT NULL)"],
            ["DROP TABLE revoked_keys"],
            [
                migrations.CreateModel(
                    "RevokedKey",
                    [
                        ("key_hash", models.TextField(primary_key=True, serialize=False)),
                        ("revoked_at", MsField()),
                    ],
                    {"db_table": "revoked_keys"},
                ),
            ],
        ),
    ]
