"""Default plugins, their configs, the default agent.

A row that exists stays as it is, and going back deletes a row only while it is as it was seeded. Ids, names,
permissions and the engine are those of ClotoCore's history; which config values it seeded at that step is not
known, so each engine gets the one that it cannot work without, its model. The memory plugin gets its
permissions in step 17, the agent its present engine in step 16, as in that history.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0005_optimize_plugin_data")]

    operations = [
        step(
            [
                """
INSERT INTO plugin_settings (plugin_id, allowed_permissions) VALUES
    ('memory.ks22', '[]'),
    ('mind.deepseek', '["NetworkAccess"]'),
    ('mind.cerebras', '["NetworkAccess"]')
ON CONFLICT DO NOTHING""",
                """
INSERT INTO plugin_configs (plugin_id, config_key, config_value) VALUES
    ('mind.deepseek', 'model_id', 'deepseek-chat'),
    ('mind.cerebras', 'model_id', 'gpt-oss-120b')
ON CONFLICT DO NOTHING""",
                """
INSERT INTO agents (id, name, description, default_engine_id, status) VALUES
    ('agent.cloto_default', 'Cloto Assistant', 'The agent that every installation starts with.',
     'mind.deepseek', 'online')
ON CONFLICT DO NOTHING""",
            ],
            [
                """
DELETE FROM agents
WHERE id = 'agent.cloto_default' AND name = 'Cloto Assistant'
    AND description = 'The agent that every installation starts with.'
    AND default_engine_id = 'mind.deepseek' AND status = 'online' AND metadata = '{}'""",
                """
DELETE FROM plugin_configs
WHERE config_key = 'model_id' AND (plugin_id = 'mind.deepseek' AND config_value = 'deepseek-chat'
    OR plugin_id = 'mind.cerebras' AND config_value = 'gpt-oss-120b')""",
                """
DELETE FROM plugin_settings
WHERE is_active AND (plugin_id = 'memory.ks22' AND allowed_permissions = '[]'
    OR plugin_id IN ('mind.deepseek', 'mind.cerebras') AND allowed_permissions = '["NetworkAccess"]')""",
            ],
        ),
    ]
