"""Which tools an agent's model is shown, and descriptions that administrators shortened."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from coordinator.feed import triggers
from coordinator.models.fields import IsoTextField, JsonTextField


def remove_triggers(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Remove the feed's triggers, which name the columns, before these go. They come back after migrating."""
    triggers.drop_feed_triggers(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0094_subscription_limits"),
    ]

    operations = [
        migrations.CreateModel(
            name="AgentToolListing",
            fields=[
                ("agent_id", models.TextField(primary_key=True, serialize=False)),
                (
                    "listed",
                    models.TextField(
                        choices=[("all", "All tools"), ("chosen", "Chosen tools"), ("search", "Search")]
                    ),
                ),
                (
                    "tools",
                    JsonTextField(db_default=models.Value("[]"), default=list),
                ),
                ("changed_by", models.TextField()),
                ("changed_at", IsoTextField()),
            ],
            options={
                "db_table": "agent_tool_listings",
            },
        ),
        migrations.AddField(
            model_name="mcptool",
            name="short_by",
            field=models.TextField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="mcptool",
            name="short_description",
            field=models.TextField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="mcptool",
            name="short_for",
            field=models.TextField(blank=True, null=True),
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_triggers),
    ]
