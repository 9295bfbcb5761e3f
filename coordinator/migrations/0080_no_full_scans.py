"""Indexes for what pages and jobs read all rows for: audit entries of a target, a program's sessions, calls by state.

They are built while others write, and so outside a transaction.
"""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import Statement, step

INDEXES = {
    "sbx_audit_logs_target": "audit_logs (target_id)",
    "sbx_sessions_program": "sessions (executor_profile, created_at)",
    "sbx_gateway_calls_state": "mcp_gateway_calls (state)",
    "sbx_gateway_calls_created": "mcp_gateway_calls (created_at)",
    "sbx_gateway_calls_expires": "mcp_gateway_calls (expires_at)",
    "sbx_gateway_calls_ended": "mcp_gateway_calls (ended_at) WHERE result IS NOT NULL",
}


def creating(name: str, columns: str) -> Statement:
    """Return the statement that makes an index, if an interrupted upgrade has not made it."""
    return {
        "sqlite": f"CREATE INDEX IF NOT EXISTS {name} ON {columns}",
        "postgresql": f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {columns}",
    }


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("coordinator", "0079_deleted_agents")]

    operations = [
        step(
            [creating(name, columns) for name, columns in INDEXES.items()],
            [f"DROP INDEX IF EXISTS {name}" for name in INDEXES],
            [
                migrations.AddIndex(
                    model_name="gatewaycall",
                    index=models.Index(fields=["state"], name="sbx_gateway_calls_state"),
                ),
                migrations.AddIndex(
                    model_name="gatewaycall",
                    index=models.Index(fields=["created_at"], name="sbx_gateway_calls_created"),
                ),
                migrations.AddIndex(
                    model_name="gatewaycall",
                    index=models.Index(fields=["expires_at"], name="sbx_gateway_calls_expires"),
                ),
                migrations.AddIndex(
                    model_name="gatewaycall",
                    index=models.Index(
                        fields=["ended_at"],
                        name="sbx_gateway_calls_ended",
                        condition=models.Q(result__isnull=False),
                    ),
                ),
            ],
        ),
    ]
