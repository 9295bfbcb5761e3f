"""Which process, and which call, waits by a request: where that process is gone, nobody does."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0080_no_full_scans")]

    operations = [
        step(
            ["ALTER TABLE permission_context ADD COLUMN waited_by TEXT"],
            ["ALTER TABLE permission_context DROP COLUMN waited_by"],
            [migrations.AddField("permissioncontext", "waited_by", models.TextField(blank=True, null=True))],
        ),
    ]
