"""The index that audit_log_cleanup's second deletion reads: rows whose text runs ahead of UTC, few or none."""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0024_changes")]

    operations = [
        step(
            [
                # The words of the WHERE are those of the trigger: the engines use the index only if they match.
                {
                    "sqlite": (
                        "CREATE INDEX sbx_audit_logs_ahead ON audit_logs (timestamp) "
                        "WHERE timestamp GLOB '*+*' AND timestamp NOT GLOB '*+00:00'"
                    ),
                    "postgresql": (
                        "CREATE INDEX sbx_audit_logs_ahead ON audit_logs (timestamp) "
                        "WHERE timestamp LIKE '%+%' AND timestamp NOT LIKE '%+00:00'"
                    ),
                },
            ],
            ["DROP INDEX sbx_audit_logs_ahead"],
        ),
    ]
