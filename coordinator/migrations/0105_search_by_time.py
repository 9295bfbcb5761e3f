"""How many indexed events each ten minutes have, so that a search goes back in the events' own time.

The index also holds all that is shown of an event now, and a word for its ten minutes, so it is emptied here;
housekeeping fills it again, oldest events first.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0104_result_marks")]

    operations = [
        step(
            [
                {
                    "sqlite": "CREATE TABLE sbx_search_spans"
                    " (span INTEGER NOT NULL PRIMARY KEY, events INTEGER NOT NULL)",
                    "postgresql": "CREATE TABLE sbx_search_spans"
                    " (span bigint NOT NULL PRIMARY KEY, events bigint NOT NULL)",
                },
                {
                    "sqlite": "INSERT INTO sbx_search (sbx_search) VALUES ('delete-all')",
                    "postgresql": "TRUNCATE sbx_search",
                },
                {
                    "sqlite": "INSERT INTO sbx_search_pieces (sbx_search_pieces) VALUES ('delete-all')",
                    "postgresql": "TRUNCATE sbx_search_terms",
                },
                {"sqlite": "DELETE FROM sbx_search_words", "postgresql": "SELECT 1"},
                {"sqlite": "DELETE FROM sbx_search_terms", "postgresql": "SELECT 1"},
                "DELETE FROM sbx_search_stale",
                "UPDATE sbx_search_progress SET swept = 0, cut_upto = NULL, rebuilt = rebuilt + 1",
            ],
            ["DROP TABLE sbx_search_spans"],
            beside_older="its searches find less until the index is full again; what it indexes meanwhile has no time,"
            " and is found once `rebuild_search` ran, as the changelog says",
        ),
    ]
