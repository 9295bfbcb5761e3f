"""What an agent needs of its engine."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.agents import default_capabilities
from coordinator.models.fields import JsonTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0003_add_sal_storage")]

    operations = [
        step(
            [
                """ALTER TABLE agents ADD COLUMN required_capabilities TEXT DEFAULT '["Reasoning", "Memory"]'"""
            ],
            ["ALTER TABLE agents DROP COLUMN required_capabilities"],
            [
                migrations.AddField(
                    "Agent",
                    "required_capabilities",
                    JsonTextField(
                        blank=True,
                        db_default=models.Value('["Reasoning", "Memory"]'),
                        default=default_capabilities,
                        null=True,
                    ),
                ),
            ],
        ),
    ]
