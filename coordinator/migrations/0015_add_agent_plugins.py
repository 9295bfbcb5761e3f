"""Which plugins each agent uses; the default agent gets its engine and its memory, if it is there."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0014_add_revoked_keys")]

    operations = [
        step(
            [
                """
CREATE TABLE agent_plugins (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    plugin_id TEXT NOT NULL,
    pos_x INTEGER NOT NULL DEFAULT 0,
    pos_y INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, plugin_id)
)""",
                "CREATE INDEX idx_agent_plugins_agent_id ON agent_plugins (agent_id)",
                """
INSERT INTO agent_plugins (agent_id, plugin_id, pos_x)
SELECT id, 'mind.cerebras', 0 FROM agents WHERE id = 'agent.cloto_default'
UNION ALL SELECT id, 'memory.ks22', 1 FROM agents WHERE id = 'agent.cloto_default'""",
            ],
            ["DROP TABLE agent_plugins"],
            [
                migrations.CreateModel(
                    "AgentPlugin",
                    [
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "agent_id",
                                "plugin_id",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        (
                            "agent",
                            models.ForeignKey(
                                "coordinator.agent",
                                models.DO_NOTHING,
                                db_index=False,
                                related_name="agent_plugins",
                            ),
                        ),
                        ("plugin_id", models.TextField()),
                        ("pos_x", models.BigIntegerField(db_default=0, default=0)),
                        ("pos_y", models.BigIntegerField(db_default=0, default=0)),
                    ],
                    {"db_table": "agent_plugins"},
                ),
            ],
        ),
    ]
