"""The memory plugin may read and write memory, unless a person granted it something else."""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0016_fix_agent_engine_type")]

    operations = [
        step(
            [
                """
UPDATE plugin_settings SET allowed_permissions = '["MemoryRead","MemoryWrite"]'
WHERE plugin_id = 'memory.ks22' AND allowed_permissions = '[]'""",
            ],
            [
                """
UPDATE plugin_settings SET allowed_permissions = '[]'
WHERE plugin_id = 'memory.ks22' AND allowed_permissions = '["MemoryRead","MemoryWrite"]'""",
            ],
        ),
    ]
