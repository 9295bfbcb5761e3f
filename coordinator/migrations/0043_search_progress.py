"""How far the search index has come, and which events it must forget because they were changed.

`sbx_search_progress` has one row. The index follows the feed, whose ids follow the order of commits: an event that
commits late is indexed too. Once after this migration all events are looked at, so that those which an older
version left out are found.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0042_owners_and_holds")]

    operations = [
        step(
            [
                """
CREATE TABLE sbx_search_progress (
    id INTEGER NOT NULL PRIMARY KEY,
    followed INTEGER NOT NULL DEFAULT 0,
    swept INTEGER,
    untidy BOOLEAN NOT NULL DEFAULT 1,
    rebuilt INTEGER NOT NULL DEFAULT 0
)""",
                "INSERT INTO sbx_search_progress (id, followed, swept) SELECT 1, coalesce(max(id), 0), 0 FROM changes",
                "CREATE TABLE sbx_search_stale (event_id INTEGER NOT NULL PRIMARY KEY)",
            ],
            ["DROP TABLE sbx_search_stale", "DROP TABLE sbx_search_progress"],
        ),
    ]
