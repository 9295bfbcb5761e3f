"""Which calls touched which files, and which tools a session called (coordinator.search.files).

Filled by whoever fills the search index; what came before this migration is read by housekeeping, oldest events
first (`filed`, NULL where all are). What is said of an event goes with it.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0049_session_titles")]

    operations = [
        step(
            [
                "CREATE TABLE sbx_files (id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE)",
                """
CREATE TABLE sbx_file_touches (
    file_id INTEGER NOT NULL REFERENCES sbx_files (id),
    event_id INTEGER NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    PRIMARY KEY (file_id, event_id)
)""",
                "CREATE INDEX sbx_file_touches_event ON sbx_file_touches (event_id)",
                """
CREATE TABLE sbx_session_tools (
    tool TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    PRIMARY KEY (tool, session_id)
)""",
                "CREATE INDEX sbx_session_tools_session ON sbx_session_tools (session_id)",
                "ALTER TABLE sbx_search_progress ADD COLUMN filed INTEGER DEFAULT 0",
            ],
            [
                "ALTER TABLE sbx_search_progress DROP COLUMN filed",
                "DROP TABLE sbx_session_tools",
                "DROP TABLE sbx_file_touches",
                "DROP TABLE sbx_files",
            ],
        ),
    ]
