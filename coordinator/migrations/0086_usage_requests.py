"""One row for each request to a model, with what it used and cost; events of before are counted in the background."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from coordinator.migrations._sql import safe_beside_older


@safe_beside_older(
    "it reads the largest id of events, and adds a row to a table that the older version does not know"
)
def begin_fill(apps: Any, schema_editor: Any) -> None:
    """Note up to which event what was used is still to be counted (actions.usage.filling)."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT max(event_id) FROM event_context")
        (last,) = cursor.fetchone()
    if last is not None:
        fill = apps.get_model("coordinator", "UsageFill").objects.using(schema_editor.connection.alias)
        fill.create(next_id=last, first_id=last)


COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "tool_tokens",
    "web_searches",
)


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0085_jobs")]

    operations = [
        migrations.CreateModel(
            name="ModelRequestUsage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("request_key", models.TextField(unique=True)),
                ("event_id", models.BigIntegerField(null=True, unique=True)),
                ("session_id", models.TextField()),
                ("subagent", models.TextField(null=True)),
                ("at_us", models.BigIntegerField()),
                ("day", models.TextField()),
                ("model", models.TextField()),
                ("provider", models.TextField(null=True)),
                *((name, models.BigIntegerField()) for name in COUNTS),
                ("is_fast", models.BooleanField()),
                ("is_batch", models.BooleanField()),
                ("is_long_context", models.BooleanField()),
                ("cost", models.FloatField(null=True)),
                ("source", models.TextField()),
            ],
            options={"db_table": "usage_requests"},
        ),
        migrations.AddIndex("modelrequestusage", models.Index(fields=["at_us"], name="usage_requests_time")),
        migrations.AddIndex(
            "modelrequestusage",
            models.Index(fields=["session_id", "day", "model"], name="usage_requests_session"),
        ),
        migrations.AddIndex(
            "modelrequestusage",
            models.Index(
                fields=["model"], name="usage_requests_unpriced", condition=models.Q(cost__isnull=True)
            ),
        ),
        migrations.CreateModel(
            name="UsageFill",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("next_id", models.BigIntegerField()),
                ("first_id", models.BigIntegerField()),
            ],
            options={"db_table": "usage_fill"},
        ),
        migrations.AddField("usageday", "cost", models.FloatField(null=True)),
        migrations.AddField("usageday", "unpriced_tokens", models.BigIntegerField(db_default=0, default=0)),
        migrations.RunPython(begin_fill, migrations.RunPython.noop),
    ]
