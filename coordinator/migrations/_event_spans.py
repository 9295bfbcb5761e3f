"""A function of PostgreSQL by which older versions noted where a session's events lie. Nothing reads that any more."""

from __future__ import annotations

FUNCTION = """
CREATE FUNCTION sbx_note_spans() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO sbx_session_spans AS s (session_id, first_id, before_id)
    SELECT n.session_id,
        least(n.first, (SELECT min(c.event_id + 0) FROM event_context c WHERE c.session_id = n.session_id
            AND NOT EXISTS (SELECT 1 FROM sbx_session_spans k WHERE k.session_id = n.session_id))),
        ((n.last + 500000) / 100000 + 1) * 100000
    FROM (SELECT session_id, min(event_id) AS first, max(event_id) AS last FROM added GROUP BY session_id) n
    WHERE NOT EXISTS (
        SELECT 1 FROM sbx_session_spans k
        WHERE k.session_id = n.session_id AND k.first_id <= n.first AND k.before_id > n.last + 250000
    ) AND EXISTS (SELECT 1 FROM sessions p WHERE p.session_id = n.session_id)
    ORDER BY n.session_id
    ON CONFLICT (session_id) DO UPDATE SET
        first_id = least(s.first_id, excluded.first_id), before_id = greatest(s.before_id, excluded.before_id);
    RETURN NULL;
END
$body$"""
