"""The default agent's engine is the one among its plugins, unless a person chose another."""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0015_add_agent_plugins")]

    operations = [
        step(
            [
                """
UPDATE agents SET default_engine_id = 'mind.cerebras'
WHERE id = 'agent.cloto_default' AND default_engine_id = 'mind.deepseek'""",
            ],
            [
                """
UPDATE agents SET default_engine_id = 'mind.deepseek'
WHERE id = 'agent.cloto_default' AND default_engine_id = 'mind.cerebras'""",
            ],
        ),
    ]
