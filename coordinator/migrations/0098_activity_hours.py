"""How often each agent called each tool, by hour."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0097_agent_names")]

    operations = [
        migrations.CreateModel(
            name="ActivityHour",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("hour", models.BigIntegerField()),
                ("agent_name", models.TextField()),
                ("tool_name", models.TextField()),
                ("calls", models.BigIntegerField()),
                ("failed", models.BigIntegerField()),
                ("within_10ms", models.BigIntegerField(default=0)),
                ("within_50ms", models.BigIntegerField(default=0)),
                ("within_100ms", models.BigIntegerField(default=0)),
                ("within_200ms", models.BigIntegerField(default=0)),
                ("within_500ms", models.BigIntegerField(default=0)),
                ("within_1s", models.BigIntegerField(default=0)),
                ("within_2s", models.BigIntegerField(default=0)),
                ("within_5s", models.BigIntegerField(default=0)),
                ("within_10s", models.BigIntegerField(default=0)),
                ("within_30s", models.BigIntegerField(default=0)),
                ("within_1m", models.BigIntegerField(default=0)),
                ("within_5m", models.BigIntegerField(default=0)),
                ("within_30m", models.BigIntegerField(default=0)),
                ("longer", models.BigIntegerField(default=0)),
            ],
            options={"db_table": "activity_hours"},
        ),
        migrations.AddConstraint(
            "activityhour",
            models.UniqueConstraint(fields=["hour", "agent_name", "tool_name"], name="activity_hours_once"),
        ),
        migrations.AddIndex(
            "activityhour", models.Index(fields=["agent_name", "hour"], name="activity_hours_agent")
        ),
        migrations.CreateModel(
            name="CountedHour",
            fields=[
                ("hour", models.BigIntegerField(primary_key=True, serialize=False)),
                ("counted_at", IsoTextField()),
                ("took_ms", models.BigIntegerField()),
            ],
            options={"db_table": "counted_hours"},
        ),
    ]
