"""In which range of ids a session's events lie, and how far the ids had come when, on PostgreSQL.

Queries that say so are planned for the parts of the events table (engine.partitions) that have anything for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection, transaction

from coordinator.engine import is_sqlite
from coordinator.engine.partitions import GRAIN, last_assigned_event_id

# A session's span reaches so many ids beyond its last event that one which another program has just written, and which
# nobody has given a context yet, lies in it too.
SPARE = 500_000
CLOCKS_APART = 3_600_000  # ms by which a machine's clock may differ from the database's

# What is looked for are a session's ids. Of a bare `min(event_id)` PostgreSQL thinks that it will soon come across one
# of them, and reads the primary key from its beginning: for a new session, all of it.
FIRST_OF = "SELECT min(c.event_id + 0) FROM event_context c WHERE c.session_id = {session_id}"
FUNCTION = f"""
CREATE FUNCTION sbx_note_spans() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO sbx_session_spans AS s (session_id, first_id, before_id)
    SELECT n.session_id,
        least(n.first, ({FIRST_OF.format(session_id="n.session_id")}
            AND NOT EXISTS (SELECT 1 FROM sbx_session_spans k WHERE k.session_id = n.session_id))),
        ((n.last + {SPARE}) / {GRAIN} + 1) * {GRAIN}
    FROM (SELECT session_id, min(event_id) AS first, max(event_id) AS last FROM added GROUP BY session_id) n
    WHERE NOT EXISTS (
        SELECT 1 FROM sbx_session_spans k
        WHERE k.session_id = n.session_id AND k.first_id <= n.first AND k.before_id > n.last + {SPARE // 2}
    ) AND EXISTS (SELECT 1 FROM sessions p WHERE p.session_id = n.session_id)
    ORDER BY n.session_id
    ON CONFLICT (session_id) DO UPDATE SET
        first_id = least(s.first_id, excluded.first_id), before_id = greatest(s.before_id, excluded.before_id);
    RETURN NULL;
END
$body$"""
TRIGGER = (
    "CREATE TRIGGER sbx_spans AFTER INSERT ON event_context REFERENCING NEW TABLE AS added"
    " FOR EACH STATEMENT EXECUTE FUNCTION sbx_note_spans()"
)


def record_session_spans(after: str, most: int) -> str | None:
    """Note where the events of some sessions lie, those beyond `after` that have no span yet.

    Each session is a transaction of its own: a writer who notes several in another order never waits for one that
    waits for it. Return the last session that was looked at, None where that was the last of all.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT s.session_id, EXISTS (SELECT 1 FROM sbx_session_spans k WHERE k.session_id = s.session_id)"
            " FROM sessions s WHERE s.session_id > %s ORDER BY s.session_id LIMIT %s",
            [after, most],
        )
        looked_at = cursor.fetchall()
    for session_id, known in looked_at:
        if not known:
            record_session_span(session_id)
    return str(looked_at[-1][0]) if looked_at else None


def record_session_span(session_id: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"""
INSERT INTO sbx_session_spans AS k (session_id, first_id, before_id)
SELECT s.session_id, c.first, ((c.last + {SPARE}) / {GRAIN} + 1) * {GRAIN} FROM sessions s
CROSS JOIN LATERAL (SELECT min(event_id + 0) AS first, max(event_id + 0) AS last FROM event_context e
    WHERE e.session_id = s.session_id) c
WHERE s.session_id = %s AND c.first IS NOT NULL
ON CONFLICT (session_id) DO UPDATE SET
    first_id = least(k.first_id, excluded.first_id), before_id = greatest(k.before_id, excluded.before_id)""",
            [session_id],
        )


def record_event_mark(now_ms: int) -> None:
    """Note how far the ids have come by now, which is not before the database's own clock says."""
    last = last_assigned_event_id()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sbx_event_marks (at, last_id) VALUES"
            " (greatest(%s, (extract(epoch FROM clock_timestamp()) * 1000)::bigint), %s) ON CONFLICT DO NOTHING",
            [now_ms, last],
        )


def newest_event_mark() -> tuple[int, int] | None:
    """Return the newest mark: when it was made (ms), and the id."""
    return select_event_mark("ORDER BY at DESC LIMIT 1", [])


def first_mark_since(at_ms: int) -> tuple[int, int] | None:
    """Return the first mark that was made since then."""
    return select_event_mark("WHERE at >= %s ORDER BY at LIMIT 1", [at_ms])


def last_mark_until(at_ms: int) -> tuple[int, int] | None:
    """Return the last mark that was made until then."""
    return select_event_mark("WHERE at <= %s ORDER BY at DESC LIMIT 1", [at_ms])


def delete_marks_before(before_ms: int) -> None:
    """Forget the marks from before then."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM sbx_event_marks WHERE at < %s", [before_ms])


def select_event_mark(which: str, parameters: list[int]) -> tuple[int, int] | None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT at, last_id FROM sbx_event_marks {which}", parameters)
        row = cursor.fetchone()
        return (int(row[0]), int(row[1])) if row else None


def first_id_since(at_ms: int) -> int | None:
    """Return an id below which nothing was received since then; None where that is not known.

    What is told late is received then and has a higher id; only what was given an id is meant.
    """
    if is_sqlite():
        return None
    found = last_mark_until(at_ms - CLOCKS_APART)
    return found[1] + 1 if found else None


def session_id_range(session_ids: Sequence[str]) -> tuple[int, int] | None:
    """Return the range of ids, from the first until before the other, in which all events of these sessions lie.

    None where that is not known, or is everything: the database is SQLite, or a session has no event yet.
    """
    if is_sqlite() or not session_ids:
        return None
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), min(first_id), max(before_id) FROM sbx_session_spans WHERE session_id = ANY(%s)",
            [list(session_ids)],
        )
        known, first, before = cursor.fetchone()
    return (first, before) if known == len(set(session_ids)) else None
