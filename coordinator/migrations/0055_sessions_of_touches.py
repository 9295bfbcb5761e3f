"""Which session a touch of a file belongs to, so that the sessions which touched one are found without its calls.

The feed's triggers, which come back after every migrate, take rows whose key is NULL from here on.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0054_rules_for_a_program")]

    operations = [
        step(
            [
                "ALTER TABLE sbx_file_touches ADD COLUMN session_id TEXT",
                "UPDATE sbx_file_touches SET session_id = "
                "(SELECT e.session_id FROM events e WHERE e.id = sbx_file_touches.event_id)",
                "CREATE INDEX sbx_file_touches_session ON sbx_file_touches (file_id, session_id)",
            ],
            [
                "DROP INDEX sbx_file_touches_session",
                "ALTER TABLE sbx_file_touches DROP COLUMN session_id",
            ],
        ),
    ]
