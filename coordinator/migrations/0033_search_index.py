"""The search index over events: FTS5 on SQLite, a GIN index on PostgreSQL (coordinator.search.events, actions.search).

It keeps no text of its own on SQLite (`content=''`): snippets come from the events themselves. No foreign key
binds it to them, for FTS5 knows none; ids are never given twice, so what is left of deleted events finds nothing.
Rebuilt by `manage.py rebuild_search`, and filled by housekeeping after this migration.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0032_notifications")]

    operations = [
        step(
            [
                {
                    "sqlite": "CREATE VIRTUAL TABLE sbx_search USING fts5(body, content='', tokenize='unicode61')",
                    "postgresql": "CREATE TABLE sbx_search (event_id bigint PRIMARY KEY, words tsvector NOT NULL)",
                },
                {
                    "sqlite": "",
                    # Without a pending list: a search must not read what thousands of inserts have left unsorted.
                    "postgresql": (
                        "CREATE INDEX sbx_search_words ON sbx_search USING gin (words) WITH (fastupdate = off)"
                    ),
                },
            ],
            ["DROP TABLE sbx_search"],
        ),
    ]
