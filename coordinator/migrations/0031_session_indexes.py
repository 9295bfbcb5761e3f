"""The indexes that the sessions' list and timelines read, each with the query that needs it."""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step

INDEXES = {
    # The list, newest first, and its date range: sessions ORDER BY created_at DESC, session_id DESC.
    "sbx_sessions_created": "sessions (created_at, session_id)",
    # The same for one status, and the numbers beside the list's status filter (GROUP BY status).
    "sbx_sessions_status": "sessions (status, created_at, session_id)",
    # The same for one agent, and the choices of the list's agent filter.
    "sbx_sessions_agent": "sessions (agent_name, created_at, session_id)",
    # A session's children in the order in which they were started; and the database's own ON DELETE SET NULL.
    "sbx_sessions_children": "sessions (parent_session_id, created_at)",
    # The list as it opens: only sessions that nobody's session started. PostgreSQL does not take IS NULL for an
    # equality, so the index above cannot give it their order.
    "sbx_sessions_roots": "sessions (created_at, session_id) WHERE parent_session_id IS NULL",
    # How many events of which kind and tool a session has (GROUP BY event_type, tool_name), without its rows;
    # the first message of a session (event_type = 'message' AND tool_name IS NULL ORDER BY id); one tool's calls.
    "sbx_events_kinds": "events (session_id, event_type, tool_name, id)",
    # Which events of a session failed: their number, "errors only", the next one; sessions that have any.
    "sbx_events_errors": "events (session_id, id) WHERE error IS NOT NULL",
}


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0030_mcp_tools")]

    operations = [
        step(
            [f"CREATE INDEX {name} ON {columns}" for name, columns in INDEXES.items()],
            [f"DROP INDEX {name}" for name in INDEXES],
        ),
    ]
