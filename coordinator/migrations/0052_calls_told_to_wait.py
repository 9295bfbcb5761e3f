"""Calls that were told to wait: what finds a request when its call is made again, and who used its verdict."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models import fields

TEXTS = ("repeat_key", "used_by")
TIMES = ("waits_until", "held_at", "used_at")


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0051_living_executors")]

    operations = [
        step(
            [
                *(f"ALTER TABLE permission_context ADD COLUMN {name} TEXT" for name in (*TEXTS, *TIMES)),
                "CREATE INDEX sbx_permission_context_repeat ON permission_context (repeat_key)"
                " WHERE repeat_key IS NOT NULL AND used_at IS NULL",
            ],
            [
                "DROP INDEX sbx_permission_context_repeat",
                *(f"ALTER TABLE permission_context DROP COLUMN {name}" for name in (*TEXTS, *TIMES)),
            ],
            [
                *(
                    migrations.AddField("permissioncontext", name, models.TextField(blank=True, null=True))
                    for name in TEXTS
                ),
                *(
                    migrations.AddField("permissioncontext", name, fields.IsoTextField(blank=True, null=True))
                    for name in TIMES
                ),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
