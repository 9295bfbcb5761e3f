"""The redundant index goes, and the audit trail cleans itself: rows over 90 days old are deleted on INSERT.

Ages are those of instants, not of texts: `2026-02-23T…` sorts after `2026-02-23 …`, and an offset moves the
clock by hours. An index on the text finds the few rows that may be old, then each is parsed; a row that cannot
be read stays (coordinator.lib.instants). Two deletions, because texts with a positive offset run ahead of UTC: the
first takes every row whose text lies before the limit, the second the few that run ahead (the partial index
of step 25 holds only those, so that neither reads the rows that are young).
"""

from __future__ import annotations

from django.db import migrations

from coordinator.lib import instants
from coordinator.migrations._sql import step

SQLITE_TRIGGER = f"""
CREATE TRIGGER audit_log_cleanup AFTER INSERT ON audit_logs
BEGIN
    DELETE FROM audit_logs
    WHERE timestamp < strftime('%Y-%m-%dT%H:%M:%S', 'now', '-90 days', '+1 second')
        AND {instants.sqlite_text_to_microseconds_sql("timestamp")}
            < CAST(strftime('%s', 'now', '-90 days') AS INTEGER) * 1000000;
    DELETE FROM audit_logs
    WHERE timestamp < strftime('%Y-%m-%dT%H:%M:%S', 'now', '-90 days', '+15 hours')
        AND timestamp GLOB '*+*' AND timestamp NOT GLOB '*+00:00'
        AND {instants.sqlite_text_to_microseconds_sql("timestamp")}
            < CAST(strftime('%s', 'now', '-90 days') AS INTEGER) * 1000000;
END"""

# Rows that somebody else is deleting are skipped: two inserts at once must not wait for each other.
POSTGRES_FUNCTION = """
CREATE FUNCTION audit_log_cleanup() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    oldest timestamptz := now() - interval '90 days';
    oldest_us bigint := extract(epoch FROM oldest)::bigint * 1000000;
    oldest_text text := to_char((oldest + interval '1 second') AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS');
    ahead_text text := to_char((oldest + interval '15 hours') AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS');
BEGIN
    DELETE FROM audit_logs WHERE id IN (
        SELECT id FROM audit_logs
        WHERE timestamp < oldest_text AND sbx_instant_us(timestamp) < oldest_us
        FOR UPDATE SKIP LOCKED);
    DELETE FROM audit_logs WHERE id IN (
        SELECT id FROM audit_logs
        WHERE timestamp < ahead_text AND timestamp LIKE '%+%' AND timestamp NOT LIKE '%+00:00'
            AND sbx_instant_us(timestamp) < oldest_us
        FOR UPDATE SKIP LOCKED);
    RETURN NULL;
END
$body$"""

POSTGRES_TRIGGER = """
CREATE TRIGGER audit_log_cleanup AFTER INSERT ON audit_logs
FOR EACH STATEMENT EXECUTE FUNCTION audit_log_cleanup()"""


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0008_add_permission_requests")]

    operations = [
        step(
            [
                "DROP INDEX idx_plugin_data_plugin_id",
                {"sqlite": "", "postgresql": instants.POSTGRES_FUNCTION},
                {"sqlite": "", "postgresql": POSTGRES_FUNCTION},
                {"sqlite": SQLITE_TRIGGER, "postgresql": POSTGRES_TRIGGER},
            ],
            [
                {
                    "sqlite": "DROP TRIGGER audit_log_cleanup",
                    "postgresql": "DROP TRIGGER audit_log_cleanup ON audit_logs",
                },
                {"sqlite": "", "postgresql": "DROP FUNCTION audit_log_cleanup()"},
                {"sqlite": "", "postgresql": "DROP FUNCTION sbx_instant_us(text)"},
                "CREATE INDEX idx_plugin_data_plugin_id ON plugin_data (plugin_id)",
            ],
        ),
    ]
