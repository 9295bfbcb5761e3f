"""What the events table has no column for, and the order of timelines."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import MsField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0021_runs")]

    operations = [
        step(
            [
                """
CREATE TABLE event_context (
    event_id INTEGER NOT NULL PRIMARY KEY REFERENCES events (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL,
    instant_us INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    run_id TEXT,
    tool_use_id TEXT,
    subagent TEXT,
    prompt_id TEXT,
    duration_ms INTEGER,
    model TEXT,
    input_tokens INTEGER,
    output_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    source TEXT NOT NULL DEFAULT 'executor'
)""",
                # A timeline's pages: a session's events after, or before, an instant and an id.
                "CREATE INDEX sbx_event_context_timeline ON event_context (session_id, instant_us, event_id)",
                # A tool's result finds its call: the event of a session with the same tool_use_id.
                "CREATE INDEX sbx_event_context_tool_use ON event_context (session_id, tool_use_id)",
            ],
            ["DROP TABLE event_context"],
            [
                migrations.CreateModel(
                    "EventContext",
                    [
                        (
                            "event",
                            models.OneToOneField(
                                "coordinator.event",
                                models.DO_NOTHING,
                                db_column="event_id",
                                primary_key=True,
                                related_name="context",
                                serialize=False,
                            ),
                        ),
                        ("session_id", models.TextField()),
                        ("instant_us", models.BigIntegerField()),
                        ("received_at", MsField()),
                        ("run_id", models.TextField(blank=True, null=True)),
                        ("tool_use_id", models.TextField(blank=True, null=True)),
                        ("subagent", models.TextField(blank=True, null=True)),
                        ("prompt_id", models.TextField(blank=True, null=True)),
                        ("duration_ms", models.BigIntegerField(blank=True, null=True)),
                        ("model", models.TextField(blank=True, null=True)),
                        ("input_tokens", models.BigIntegerField(blank=True, null=True)),
                        ("output_tokens", models.BigIntegerField(blank=True, null=True)),
                        ("cache_read_tokens", models.BigIntegerField(blank=True, null=True)),
                        ("cache_write_tokens", models.BigIntegerField(blank=True, null=True)),
                        ("source", models.TextField(db_default="executor", default="executor")),
                    ],
                    {"db_table": "event_context"},
                ),
            ],
        ),
    ]
