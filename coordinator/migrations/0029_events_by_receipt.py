"""The overview counts what was received in the last hour and day; without an index it would read every event."""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0028_permission_context")]

    operations = [
        step(
            ["CREATE INDEX sbx_event_context_received ON event_context (received_at)"],
            ["DROP INDEX sbx_event_context_received"],
        ),
    ]
