"""Pieces of words: the kept words, found by the threes of letters in them (coordinator.engine.full_text).

What is kept already is not `cut` yet. Housekeeping cuts it, a little at a time, from the first word to the last
(`cut_upto`, NULL where all are): until then those words are found whole and by their beginnings, as before.
PostgreSQL needs no extension for it.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0045_what_approvals_cover")]

    operations = [
        step(
            [
                "ALTER TABLE sbx_search_terms ADD COLUMN cut BOOLEAN NOT NULL DEFAULT 0",
                {
                    "sqlite": "CREATE TABLE sbx_search_words (id INTEGER NOT NULL PRIMARY KEY, word TEXT NOT NULL)",
                    "postgresql": """
CREATE FUNCTION sbx_pieces(word text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT array_agg(substr(word, n, 3)) FROM generate_series(1, length(word) - 2) AS n $$""",
                },
                {
                    "sqlite": "CREATE VIRTUAL TABLE sbx_search_pieces USING"
                    " fts5(word, content='sbx_search_words', content_rowid='id', detail='none', tokenize='trigram')",
                    "postgresql": "CREATE INDEX sbx_search_terms_pieces ON sbx_search_terms"
                    " USING gin (sbx_pieces(word)) WITH (fastupdate = off) WHERE cut",
                },
                "ALTER TABLE sbx_search_progress ADD COLUMN cut_upto TEXT DEFAULT ''",
                "ALTER TABLE sbx_search_progress ADD COLUMN words_cut INTEGER NOT NULL DEFAULT 0",
                "ALTER TABLE sbx_search_progress ADD COLUMN words_to_cut INTEGER NOT NULL DEFAULT 0",
            ],
            [
                "ALTER TABLE sbx_search_progress DROP COLUMN words_to_cut",
                "ALTER TABLE sbx_search_progress DROP COLUMN words_cut",
                "ALTER TABLE sbx_search_progress DROP COLUMN cut_upto",
                {
                    "sqlite": "DROP TABLE sbx_search_pieces",
                    "postgresql": "DROP INDEX sbx_search_terms_pieces",
                },
                {"sqlite": "DROP TABLE sbx_search_words", "postgresql": "DROP FUNCTION sbx_pieces"},
                "ALTER TABLE sbx_search_terms DROP COLUMN cut",
            ],
        ),
    ]
