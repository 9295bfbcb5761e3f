"""Drops the limit of ids that an unfinished `partition_events` of an older version left on the tables of events.

The job that made parts is gone, too.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step

TABLES = ("events", "event_context", "sbx_search", "sbx_file_touches")


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0086_usage_requests")]

    operations = [
        step(
            [
                {"sqlite": "", "postgresql": f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS sbx_below"}
                for table in TABLES
            ]
            + ["DELETE FROM jobs WHERE name = 'events:parts'"],
            [],
            beside_older="the older version drops the limit by itself after a day, and has its jobs in another table",
        ),
    ]
