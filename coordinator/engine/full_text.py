"""The index of events' words: FTS5 on SQLite, a tsvector with a GIN index on PostgreSQL.

The words are also stored by themselves (`sbx_search_terms`), so that a piece of a word becomes the words it is a
piece of. They are found by the trigrams in them: by FTS5's trigram tokenizer (`sbx_search_pieces`, over
`sbx_search_words`), or by a GIN index over `sbx_pieces(word)`. Words that were kept before there were pieces are
`cut` into them one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple, Protocol

from django.db import connection, transaction

from coordinator.engine import engine_name, is_sqlite

# Words of one beginning that are put into a question at all.
MOST_WORDS = {"sqlite": 5_000, "postgresql": 500}
PIECE = 3  # letters that words are found by
# Events of the stretches of time that are asked for, newest first: the first ones, then the last again.
STRETCHES = {"sqlite": (16_384, 65_536, 524_288, 2_097_152), "postgresql": (16_384, 32_768, 131_072)}
# Words of an event among which phrases are found: PostgreSQL notes no place beyond 16,383.
MOST_PHRASE_WORDS = {"sqlite": 10_000_000, "postgresql": 16_000}
_KEYS = {"sqlite": ("sbx_search_docsize", "id"), "postgresql": ("sbx_search", "event_id")}
_UNUSED = {
    "sqlite": """FROM sbx_search_terms AS t
        WHERE NOT EXISTS (SELECT 1 FROM sbx_search WHERE sbx_search MATCH '"' || t.word || '"')""",
    "postgresql": """FROM sbx_search_terms AS t
        WHERE NOT EXISTS (SELECT 1 FROM sbx_search i WHERE i.words @@ to_tsquery('simple', t.word))""",
}


class SearchPhrase(Protocol):
    """Words that must be adjacent; the last one may go on (`prefix`). See search.text.SearchTerm."""

    @property
    def words(self) -> tuple[str, ...]: ...

    @property
    def prefix(self) -> bool: ...


Groups = Sequence[Sequence[SearchPhrase]]  # of each group one must be found


class MatchQuery(NamedTuple):
    """How a statement asks for what matches: a table, its column of ids, a condition and its parameter."""

    table: str
    key: str
    condition: str
    question: str


def event_match_query(groups: Groups) -> MatchQuery:
    """Return what asks the index of events for groups of words."""
    if is_sqlite():
        return MatchQuery("sbx_search", "sbx_search.rowid", "sbx_search MATCH %s", build_fts5_query(groups))
    return MatchQuery(
        "sbx_search i", "i.event_id", "i.words @@ to_tsquery('simple', %s)", build_tsquery(groups)
    )


def max_words_per_prefix() -> int:
    """Return how many words of one beginning may be put into a question."""
    return MOST_WORDS[engine_name()]


def max_event_terms_for_phrases() -> int:
    """Return among how many words of an event phrases are found."""
    return MOST_PHRASE_WORDS[engine_name()]


def iterate_search_batch_sizes() -> Iterator[int]:
    """Yield how many events the stretches should have that are asked for one after the other."""
    *first, last = STRETCHES[engine_name()]
    yield from first
    while True:
        yield last


@contextmanager
def disable_table_scans_during_block() -> Iterator[None]:
    """Keep PostgreSQL from reading or hashing whole tables for the few rows that a question needs of them."""
    if is_sqlite():
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
        )
        yield


def add_indexed_event_counts(spans: Sequence[tuple[int, int]]) -> None:
    """Note how many more events are indexed of each span of time. Part of a transaction."""
    if spans:
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO sbx_search_spans (span, events) VALUES (%s, %s)"
                " ON CONFLICT (span) DO UPDATE SET events = sbx_search_spans.events + excluded.events",
                spans,
            )


def build_fts5_query(groups: Groups) -> str:
    """Return groups of terms in FTS5's language. Words are letters and digits, so nothing needs quoting."""
    return " AND ".join(
        "(" + " OR ".join(f'"{" ".join(term.words)}"{"*" if term.prefix else ""}' for term in group) + ")"
        for group in groups
    )


def build_tsquery(groups: Groups) -> str:
    """Return groups of terms in PostgreSQL's language."""
    return " & ".join(
        "(" + " | ".join(f"({' <-> '.join(term.words)}{':*' if term.prefix else ''})" for term in group) + ")"
        for group in groups
    )


def search_index_table_and_id() -> tuple[str, str]:
    """Return the table with a row for each indexed event, and its column of ids."""
    return _KEYS[engine_name()]


def list_words_with_prefix(piece: str, most: int) -> list[str]:
    """Return kept words that begin so, at most so many."""
    return execute_and_fetch_strings(
        "SELECT word FROM sbx_search_terms WHERE word >= %s AND word < %s ORDER BY word LIMIT %s",
        [piece, piece + "\U0010ffff", most],
    )


def list_words_containing(piece: str, most: int, *, at_end: bool = False) -> list[str]:
    """Return kept words that have a piece of PIECE letters or more anywhere, or at their end; at most so many."""
    if is_sqlite():
        where = "substr(word, -length(%s)) = %s" if at_end else "instr(word, %s)"
        return execute_and_fetch_strings(
            f"SELECT word FROM sbx_search_pieces WHERE sbx_search_pieces MATCH %s AND {where} LIMIT %s",
            [trigram_query(piece), *([piece] * (2 if at_end else 1)), most],
        )
    where = "right(word, length(%s)) = %s" if at_end else "strpos(word, %s) > 0"
    with transaction.atomic():
        disable_sequential_scans()
        return execute_and_fetch_strings(
            "SELECT word FROM sbx_search_terms WHERE cut AND sbx_pieces(word) @> sbx_pieces(%s::text)"
            f" AND {where} LIMIT %s",
            [piece, *([piece] * (2 if at_end else 1)), most],
        )


def trigram_query(piece: str) -> str:
    """Return a piece's threes of letters in FTS5's language; words that have them all may still not have the piece."""
    return " AND ".join(dict.fromkeys(f'"{piece[at : at + PIECE]}"' for at in range(len(piece) - PIECE + 1)))


def execute_and_fetch_strings(statement: str, parameters: Sequence[str | int]) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(statement, list(parameters))
        return [word for (word,) in cursor.fetchall()]


def store_search_words(words: list[str]) -> None:
    """Keep the words by themselves, for pieces; those that are kept already stay."""
    if is_sqlite():
        new = execute_and_fetch_strings(
            "INSERT OR IGNORE INTO sbx_search_terms (word, cut) SELECT value, 1 FROM json_each(%s) RETURNING word",
            [json.dumps(words)],
        )
        add_word_pieces(new)
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sbx_search_terms (word, cut) SELECT new.word, true"
            " FROM unnest(string_to_array(%s, ' ')) AS new (word)"
            " WHERE NOT EXISTS (SELECT 1 FROM sbx_search_terms t WHERE t.word = new.word) ON CONFLICT DO NOTHING",
            [" ".join(words)],
        )


def index_pieces_of_word_range(after: str, upto: str) -> None:
    """Cut those of the kept words, after the one and up to the other, that are not cut into pieces yet."""
    cut = "UPDATE sbx_search_terms SET cut = true WHERE NOT cut AND word > %s AND word <= %s"
    if is_sqlite():
        add_word_pieces(execute_and_fetch_strings(f"{cut} RETURNING word", [after, upto]))
        return
    with connection.cursor() as cursor:
        cursor.execute(cut, [after, upto])


def add_word_pieces(words: Sequence[str]) -> None:
    long = json.dumps([word for word in words if len(word) >= PIECE])
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM sbx_search_words")
        (last,) = cursor.fetchone()
        cursor.execute("INSERT INTO sbx_search_words (word) SELECT value FROM json_each(%s)", [long])
        cursor.execute(
            "INSERT INTO sbx_search_pieces (rowid, word) SELECT id, word FROM sbx_search_words WHERE id > %s",
            [last],
        )


def delete_word_pieces(words: Sequence[str]) -> None:
    with connection.cursor() as cursor:
        for word in words:
            if len(word) < PIECE:
                continue
            cursor.execute(
                "SELECT rowid FROM sbx_search_pieces WHERE sbx_search_pieces MATCH %s AND word = %s",
                [trigram_query(word), word],
            )
            for (row,) in cursor.fetchall():
                cursor.execute(
                    "INSERT INTO sbx_search_pieces (sbx_search_pieces, rowid, word) VALUES ('delete', %s, %s)",
                    [row, word],
                )
                cursor.execute("DELETE FROM sbx_search_words WHERE id = %s", [row])


def index_event_texts(documents: Sequence[tuple[int, str]]) -> None:
    """Index events by their words, joined by blanks. What is indexed already stays as it is.

    PostgreSQL gets all of them as one text with a line for each: it takes half the time of a statement for each.
    """
    with connection.cursor() as cursor:
        if is_sqlite():
            # Twice the same event would be found twice, and the virtual table itself does not refuse it.
            cursor.executemany(
                "INSERT INTO sbx_search (rowid, body) SELECT %s, %s"
                " WHERE NOT EXISTS (SELECT 1 FROM sbx_search_docsize WHERE id = %s)",
                [(pk, text, pk) for pk, text in documents],
            )
        else:
            cursor.execute(
                "INSERT INTO sbx_search (event_id, words) SELECT id, to_tsvector('simple', document)"
                " FROM unnest(%s::bigint[], string_to_array(%s, E'\\n')) AS documents (id, document)"
                " ON CONFLICT DO NOTHING",
                [[pk for pk, _ in documents], "\n".join(text for _, text in documents)],
            )


def flush_gin_pending_lists() -> None:
    """Have PostgreSQL sort what it gathered for its GIN indexes into them: each search reads all that it gathered.

    Nothing is done where the indexes are another role's: autovacuum does it.
    """
    if is_sqlite():
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT gin_clean_pending_list(i.indexrelid) FROM pg_index i"
            " JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam"
            " WHERE a.amname = 'gin' AND c.relkind = 'i' AND pg_has_role(c.relowner, 'USAGE') AND i.indrelid IN ("
            "SELECT 'sbx_search_terms'::regclass UNION SELECT 'sbx_search'::regclass"
            " UNION SELECT relid FROM pg_partition_tree('sbx_search'::regclass))"
        )


def clear_search_index() -> None:
    """Take all events and words out of the index, and what is to be read again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sbx_search (sbx_search) VALUES ('delete-all')"
            if is_sqlite()
            else "TRUNCATE sbx_search"
        )
        if is_sqlite():
            cursor.execute("INSERT INTO sbx_search_pieces (sbx_search_pieces) VALUES ('delete-all')")
            cursor.execute("DELETE FROM sbx_search_words")
        for table in ("sbx_search_terms", "sbx_search_stale", "sbx_search_spans"):
            cursor.execute(f"DELETE FROM {table}")


@contextmanager
def search_index_remover_during_block(
    event_ids: Sequence[int], stretches_of_words: Iterable[tuple[str, str]]
) -> Iterator[Callable[[Sequence[int]], None]]:
    """Give a function that takes some of the events `event_ids` out of the index, called in a transaction.

    SQLite's index keeps no texts, and FTS5 removes an event's words only if it is given them. So they are looked
    for in the index itself first: one walk through its words, `stretches_of_words` at a time, for all of `event_ids`.
    """
    if not is_sqlite():
        yield delete_events_from_postgres_index
        return
    drop_index_removal_tables()
    try:
        collect_words_into_temp_tables(event_ids, stretches_of_words)
        yield delete_collected_events_from_index
    finally:
        drop_index_removal_tables()


def delete_events_from_postgres_index(events: Sequence[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sbx_search WHERE event_id = ANY(%s)", [list(events)])


def drop_index_removal_tables() -> None:
    with connection.cursor() as cursor:
        for name in ("sbx_gone", "sbx_gone_words", "sbx_places"):
            cursor.execute(f"DROP TABLE IF EXISTS temp.{name}")


def collect_words_into_temp_tables(
    event_ids: Sequence[int], stretches_of_words: Iterable[tuple[str, str]]
) -> None:
    """Note the words of the events, as often as each has them."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE sbx_gone (id INTEGER PRIMARY KEY)")
        cursor.executemany("INSERT INTO sbx_gone VALUES (%s)", [(pk,) for pk in event_ids])
        cursor.execute("CREATE TEMP TABLE sbx_gone_words (id INTEGER, body TEXT)")
        cursor.execute("CREATE VIRTUAL TABLE temp.sbx_places USING fts5vocab(main, sbx_search, instance)")
        for after, upto in stretches_of_words:
            cursor.execute(
                "INSERT INTO sbx_gone_words SELECT doc, group_concat(term, ' ') FROM sbx_places"
                " WHERE term > %s AND term <= %s AND doc IN (SELECT id FROM sbx_gone) GROUP BY doc",
                [after, upto],
            )
        cursor.execute("CREATE INDEX temp.sbx_gone_words_id ON sbx_gone_words (id)")


def delete_collected_events_from_index(events: Sequence[int]) -> None:
    marks = ", ".join(["%s"] * len(events))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sbx_search (sbx_search, rowid, body)"
            " SELECT 'delete', g.id, coalesce(group_concat(w.body, ' '), '') FROM sbx_gone g"
            f" LEFT JOIN sbx_gone_words w ON w.id = g.id WHERE g.id IN ({marks}) GROUP BY g.id",
            list(events),
        )


def list_orphaned_index_words(after: str, upto: str) -> list[str]:
    """Return kept words, after the one and up to the other, that no event had when it was looked. Holds no lock."""
    query = f"SELECT word {_UNUSED[engine_name()]} AND word > %s AND word <= %s"
    with transaction.atomic() if not is_sqlite() else nullcontext(), connection.cursor() as cursor:
        disable_sequential_scans()
        cursor.execute(query, [after, upto])
        return [word for (word,) in cursor.fetchall()]


def delete_search_terms_without_events(words: Sequence[str]) -> None:
    """Forget those of the kept words that no event has. The caller keeps others from adding some meanwhile."""
    marks = ", ".join(["%s"] * len(words))
    with connection.cursor() as cursor:
        disable_sequential_scans()
        cursor.execute(f"DELETE {_UNUSED[engine_name()]} AND word IN ({marks}) RETURNING word", list(words))
        unused_words = [word for (word,) in cursor.fetchall()]
    if is_sqlite():
        delete_word_pieces(unused_words)


def disable_sequential_scans() -> None:
    """Keep PostgreSQL from reading all rows for each word, until the transaction ends."""
    if not is_sqlite():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
