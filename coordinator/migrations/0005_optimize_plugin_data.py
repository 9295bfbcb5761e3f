"""An index on plugin_data, which step 9 finds redundant: the primary key begins with the same column."""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0004_add_agent_capabilities")]

    operations = [
        step(
            ["CREATE INDEX idx_plugin_data_plugin_id ON plugin_data (plugin_id)"],
            ["DROP INDEX idx_plugin_data_plugin_id"],
        ),
    ]
