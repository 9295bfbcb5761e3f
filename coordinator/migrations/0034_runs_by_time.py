"""The list of runs opens with the newest of every status; the document's index leads with the status."""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0033_search_index")]

    operations = [
        step(["CREATE INDEX sbx_runs_created ON runs (created_at, run_id)"], ["DROP INDEX sbx_runs_created"]),
    ]
