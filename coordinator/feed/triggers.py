"""The feed's triggers: each insert, update and delete in the feed's tables becomes a row of `changes`.

They are defined here alone, one line of `FEED_TABLES` a table. Every migrate and every start restores them
(operations.triggers_and_groups), because Django's table remakes on SQLite drop them. `synchronize_feed_triggers` only
touches what differs.

An update is recorded if a column changed that people or machines look at; `quiet` names the other columns.
Foreign keys fire triggers too: a deleted session records its runs and the children that lose their parent,
but not its events, of which there may be 100,000: its own row is enough (no DELETE trigger).
"""

from __future__ import annotations

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from coordinator.engine import change_triggers
from coordinator.engine.change_triggers import FeedTable, FeedTrigger

FEED_TABLES = (
    FeedTable("sessions", "session_id", "sessions"),
    # A topic of its own: streams of the coordinator's API send sessions as they were recorded, without titles.
    FeedTable("session_titles", "session_id", "session_titles"),
    FeedTable("events", "id", "events", "session_id", ops=("insert", "update")),
    FeedTable("runs", "run_id", "runs", "session_id"),
    FeedTable("held_runs", "run_id", "runs", part=True),
    FeedTable("living_executors", "session_id", "sessions", part=True),
    FeedTable("driven_sessions", "session_id", "driven", quiet=frozenset({"last_n"})),
    FeedTable("drafts", "session_id", "drafts"),
    FeedTable("session_changes", "id", "session_changes", "session_id", ops=("insert", "update")),
    FeedTable("session_notes", "id", "notes", "session_id"),
    FeedTable("driven_calls", "session_id", "drafts", part=True),
    FeedTable("driven_commands", "runner_id", "runners", part=True),
    FeedTable("runner_offers", "runner_id", "runners", part=True),
    FeedTable("runners", "runner_id", "runners", quiet=frozenset({"last_heartbeat"})),
    FeedTable("stop_commands", "runner_id", "runners", part=True, ops=("insert", "update")),
    FeedTable("permission_requests", "id", "permission_requests", "plugin_id"),
    FeedTable("permission_votes", "request_id", "permission_requests", part=True),
    FeedTable("request_assignments", "request_id", "permission_requests", part=True),
    FeedTable("mcp_servers", "name", "mcp_servers"),
    FeedTable("mcp_credentials", "server_id", "mcp_servers", part=True),
    FeedTable("accepted_only_servers", "server_id", "mcp_servers", part=True),
    FeedTable("mcp_processes", "id", "mcp_processes", "server_id"),
    FeedTable("mcp_access_control", "id", "grants", "server_id"),
    FeedTable("mcp_tools", "id", "mcp_tools", "server_id"),
    FeedTable("agent_tool_listings", "agent_id", "grants", part=True),
    FeedTable("tool_collections", "name", "grants", part=True),
    FeedTable("mcp_upstreams", "server_id", "mcp_upstreams"),
    FeedTable("mcp_call_limits", "server_id", "mcp_upstreams", part=True),
    FeedTable("mcp_circuit_breakers", "server_id", "mcp_upstreams", part=True),
    FeedTable("mcp_gateway_calls", "call_id", "gateway_calls"),
    FeedTable("tool_rules", "id", "tool_rules"),
    FeedTable("brakes", "id", "brakes"),
    # Counted up with every change to who may decide what, groups and roles among them.
    FeedTable("rights_version", "id", "deciders"),
    FeedTable("budgets", "id", "budgets"),
    FeedTable("budget_marks", "budget_id", "budgets", part=True, ops=("insert",)),
    FeedTable("chat_messages", "id", "chat_messages", "agent_id"),
    FeedTable("agents", "id", "agents"),
    FeedTable("api_keys", "id", "api_keys", quiet=frozenset({"last_used_at"})),
    FeedTable("installation_settings", "name", "api_keys", part=True),  # such as which keys are refused
    # Nobody can have tried one before.
    FeedTable("session_keys", "id", "session_keys", ops=("update", "delete")),
    FeedTable("audit_logs", "id", "audit", ops=("insert",)),
    FeedTable("auth_user", "id", "users", quiet=frozenset({"last_login"})),
    FeedTable("auth_user_groups", "user_id", "users", part=True),
    # Whoever was signed out, by themselves or by an administrator, is looked up again where a stream is open.
    FeedTable("django_session", "session_key", "users", part=True, ops=("delete",)),
)


def build_expected_triggers(connection: BaseDatabaseWrapper) -> dict[str, FeedTrigger]:
    """Return every trigger that the feed needs, by name, for those of its tables that exist."""
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor))
        if "changes" not in tables:
            return {}
        return {
            trigger.name: trigger
            for feed_table in FEED_TABLES
            if feed_table.table in tables
            for trigger in change_triggers.build_feed_triggers(
                connection, feed_table, change_triggers.list_table_columns(cursor, feed_table.table)
            )
        }


def load_current_trigger_fingerprints(connection: BaseDatabaseWrapper) -> dict[str, tuple[str, str]]:
    """Return the feed's triggers in the database: by name, their table and their fingerprint."""
    return change_triggers.feed_trigger_fingerprints_by_name(connection, FEED_TABLES)


def synchronize_feed_triggers(connection: BaseDatabaseWrapper) -> list[str]:
    """Create what is missing, replace what is different, drop what is no longer needed; return the names touched."""
    expected_triggers, current_triggers = (
        build_expected_triggers(connection),
        load_current_trigger_fingerprints(connection),
    )
    stale = {
        name: table
        for name, (table, fingerprint) in current_triggers.items()
        if name not in expected_triggers or fingerprint != expected_triggers[name].trigger_fingerprint
    }
    missing = [
        trigger
        for name, trigger in expected_triggers.items()
        if name not in current_triggers or name in stale
    ]
    if stale or missing:
        # In one transaction, so that no write falls between an old trigger and the new one, untold.
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            for name, table in stale.items():
                change_triggers.drop_feed_trigger(connection, cursor, name, table)
            for trigger in missing:
                change_triggers.create_feed_trigger(connection, cursor, trigger)
    return sorted({*stale, *(trigger.name for trigger in missing)})


def drop_feed_triggers(connection: BaseDatabaseWrapper) -> None:
    """Drop all of the feed's triggers, and on PostgreSQL their functions."""
    with connection.cursor() as cursor:
        for name, (table, _) in load_current_trigger_fingerprints(connection).items():
            change_triggers.drop_feed_trigger(connection, cursor, name, table)
        change_triggers.drop_trigger_functions(connection, cursor, FEED_TABLES)
