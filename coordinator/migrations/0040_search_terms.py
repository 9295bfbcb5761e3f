"""The words of the search index by themselves, so that `beginn*` becomes the words that begin so.

The index also holds new words now (agent, day, month, year and block: coordinator.search.text), so it is emptied
here; housekeeping fills it again, oldest events first, which takes minutes for a million.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0039_model_prices")]

    operations = [
        step(
            [
                {
                    "sqlite": "CREATE TABLE sbx_search_terms (word TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID",
                    "postgresql": 'CREATE TABLE sbx_search_terms (word text COLLATE "C" PRIMARY KEY)',
                },
                {
                    "sqlite": "INSERT INTO sbx_search (sbx_search) VALUES ('delete-all')",
                    "postgresql": "TRUNCATE sbx_search",
                },
            ],
            ["DROP TABLE sbx_search_terms"],
        ),
    ]
