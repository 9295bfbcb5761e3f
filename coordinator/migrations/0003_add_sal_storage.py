"""The storage that plugins keep values of their own in."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models.functions import Now

from coordinator.migrations._sql import step
from coordinator.models.fields import SqlDateTimeField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0002_add_permissions")]

    operations = [
        step(
            [
                """
CREATE TABLE plugin_data (
    plugin_id TEXT,
    key TEXT,
    value TEXT,
    updated_at DATETIME DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (plugin_id, key)
)""",
            ],
            ["DROP TABLE plugin_data"],
            [
                migrations.CreateModel(
                    "PluginData",
                    [
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "plugin_id",
                                "key",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("plugin_id", models.TextField()),
                        ("key", models.TextField()),
                        ("value", models.TextField(blank=True, null=True)),
                        ("updated_at", SqlDateTimeField(blank=True, db_default=Now(), null=True)),
                    ],
                    {"db_table": "plugin_data"},
                ),
            ],
        ),
    ]
