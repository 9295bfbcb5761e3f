"""Whose a name is by which sessions, runs and requests know an agent, where a person said so."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0096_session_guards")]

    operations = [
        step(
            [
                """
CREATE TABLE agent_names (
    name TEXT NOT NULL PRIMARY KEY,
    agent_id TEXT REFERENCES agents (id) ON DELETE CASCADE,
    linked_by TEXT NOT NULL,
    linked_at TEXT NOT NULL
)""",
            ],
            ["DROP TABLE agent_names"],
            [
                migrations.CreateModel(
                    name="AgentName",
                    fields=[
                        ("name", models.TextField(primary_key=True, serialize=False)),
                        (
                            "agent",
                            models.ForeignKey(
                                db_index=False,
                                null=True,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="other_names",
                                to="coordinator.agent",
                            ),
                        ),
                        ("linked_by", models.TextField()),
                        ("linked_at", IsoTextField()),
                    ],
                    options={"db_table": "agent_names"},
                ),
            ],
        ),
    ]
