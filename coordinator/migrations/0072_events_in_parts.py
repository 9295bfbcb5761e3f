"""Older versions put the events table of PostgreSQL into parts here. It stays as it is now (engine.partitions).

Nothing reads the tables any more; a later version drops them.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations import _event_spans
from coordinator.migrations._sql import step


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
                {"sqlite": "", "postgresql": _event_spans.FUNCTION},
            ],
            [
                {"sqlite": "", "postgresql": "DROP FUNCTION sbx_note_spans CASCADE"},
                {"sqlite": "", "postgresql": "DROP TABLE sbx_event_marks"},
                {"sqlite": "", "postgresql": "DROP TABLE sbx_session_spans"},
            ],
        ),
    ]
