"""Grants that ask: beside a row that denies, for whoever does not know them, stands one that says it asks."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0056_brakes")]

    operations = [
        step(
            [
                """
CREATE TABLE asking_grants (
    grant_id INTEGER NOT NULL PRIMARY KEY REFERENCES mcp_access_control (id) ON DELETE CASCADE
)"""
            ],
            ["DROP TABLE asking_grants"],
            [
                migrations.CreateModel(
                    name="AskingGrant",
                    fields=[
                        (
                            "grant",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="asking",
                                serialize=False,
                                to="coordinator.grant",
                            ),
                        ),
                    ],
                    options={"db_table": "asking_grants"},
                ),
            ],
        ),
    ]
