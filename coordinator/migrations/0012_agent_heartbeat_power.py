"""Whether an agent may work, when it last said so, and the password for switching it."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import MsField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0011_rename_python_analyst")]

    operations = [
        step(
            [
                "ALTER TABLE agents ADD COLUMN enabled BOOLEAN NOT NULL DEFAULT 1",
                "ALTER TABLE agents ADD COLUMN last_seen INTEGER NOT NULL DEFAULT 0",
                "ALTER TABLE agents ADD COLUMN power_password_hash TEXT DEFAULT NULL",
            ],
            [
                "ALTER TABLE agents DROP COLUMN power_password_hash",
                "ALTER TABLE agents DROP COLUMN last_seen",
                "ALTER TABLE agents DROP COLUMN enabled",
            ],
            [
                migrations.AddField("Agent", "enabled", models.BooleanField(db_default=True, default=True)),
                migrations.AddField("Agent", "last_seen", MsField(db_default=0, default=0)),
                migrations.AddField("Agent", "power_password_hash", models.TextField(blank=True, null=True)),
            ],
        ),
    ]
