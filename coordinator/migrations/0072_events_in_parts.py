"""On PostgreSQL the events table is in parts from here on (coordinator.engine.partitions), if it is empty and others
hang nothing on it.

Any other stays whole until `manage.py partition_events`, which works beside a running server.

`sbx_session_spans` says in which range of ids a session's events lie, `sbx_event_marks` how far the ids had come when.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations

from coordinator.engine import event_spans, partition_changes, partitions
from coordinator.feed import triggers
from coordinator.migrations._sql import step

PART = 1_000_000  # ids, of each of the first parts


def begin(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Put empty tables into parts."""
    if schema_editor.connection.vendor != "postgresql":
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"(SELECT 1 FROM {table} LIMIT 1)" for table in partitions.TABLES))
        if cursor.fetchone() is None and not partition_changes.list_unmovable_attachments():
            partition_changes.partition_empty_tables(PART)


def undo(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Make the tables whole again. The feed's triggers come back after migrating."""
    triggers.drop_feed_triggers(schema_editor.connection)
    if schema_editor.connection.vendor == "postgresql" and partitions.has_partitioned_events():
        partition_changes.merge_partitions()


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0071_budgets")]

    operations = [
        step(
            [
                {
                    "sqlite": "",
                    "postgresql": """
CREATE TABLE sbx_session_spans (
    session_id text NOT NULL PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    first_id bigint NOT NULL,
    before_id bigint NOT NULL
)""",
                },
                {
                    "sqlite": "",
                    "postgresql": "CREATE TABLE sbx_event_marks (at bigint PRIMARY KEY, last_id bigint NOT NULL)",
                },
                {"sqlite": "", "postgresql": event_spans.FUNCTION},
            ],
            [
                {"sqlite": "", "postgresql": "DROP FUNCTION sbx_note_spans"},
                {"sqlite": "", "postgresql": "DROP TABLE sbx_event_marks"},
                {"sqlite": "", "postgresql": "DROP TABLE sbx_session_spans"},
            ],
        ),
        migrations.RunPython(begin, undo),
    ]
