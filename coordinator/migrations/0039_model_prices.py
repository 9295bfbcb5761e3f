"""What models cost, and indexes that find the events with token counts among all others.

The prices are Anthropic's list prices as they were known when this was written; people edit them.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models import fields

# US dollars per million tokens: input, output; reading from the cache costs a tenth, writing five quarters.
KNOWN = {
    "claude-opus-4-6": (5, 25),
    "claude-opus-4-5": (5, 25),
    "claude-opus-4-1": (15, 75),
    "claude-opus-4": (15, 75),
    "claude-sonnet-4-5": (3, 15),
    "claude-sonnet-4": (3, 15),
    "claude-haiku-4-5": (1, 5),
    "claude-3-5-haiku": (0.8, 4),
}
SEEDED_AT = "2026-11-21T00:00:00.000000+00:00"


def seed(apps: Any, schema_editor: Any) -> None:
    price = apps.get_model("coordinator", "ModelPrice")
    for model, (given, made) in KNOWN.items():
        price.objects.using(schema_editor.connection.alias).create(
            model=model,
            input=given,
            output=made,
            cache_read=round(given / 10, 4),
            cache_write=round(given * 1.25, 4),
            changed_at=SEEDED_AT,
            changed_by="system:signalbox",
        )


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0038_sessions_by_host")]

    operations = [
        step(
            [
                "CREATE INDEX sbx_event_context_usage ON event_context (session_id) WHERE output_tokens IS NOT NULL",
                "CREATE INDEX sbx_event_context_spent ON event_context (received_at) WHERE output_tokens IS NOT NULL",
            ],
            ["DROP INDEX sbx_event_context_usage", "DROP INDEX sbx_event_context_spent"],
        ),
        migrations.CreateModel(
            name="ModelPrice",
            fields=[
                ("model", models.TextField(primary_key=True, serialize=False)),
                ("input", models.FloatField()),
                ("output", models.FloatField()),
                ("cache_read", models.FloatField()),
                ("cache_write", models.FloatField()),
                ("changed_at", fields.IsoTextField()),
                ("changed_by", models.TextField()),
            ],
            options={"db_table": "model_prices"},
        ),
        migrations.RunPython(seed, migrations.RunPython.noop),
    ]
