"""Which tools an agent's model is shown, and descriptions that administrators shortened."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers
from coordinator.models.fields import IsoTextField, JsonTextField


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
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
