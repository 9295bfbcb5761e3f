"""The list of sessions for one host, newest first; and the choices of its host filter (views.session_list.CHOICES)."""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0037_tool_rules")]

    operations = [
        step(
            ["CREATE INDEX sbx_sessions_host ON sessions (hostname, created_at, session_id)"],
            ["DROP INDEX sbx_sessions_host"],
        ),
    ]
