"""What an approval covers: where a call runs, how widely it was approved, and digests that find it by an index."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step

CONTEXT_COLUMNS = ("folder", "host", "scope", "cover_key")
VOTE_COLUMNS = ("scope", "judged")


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0044_list_prices")]

    operations = [
        step(
            [
                *(f"ALTER TABLE permission_context ADD COLUMN {name} TEXT" for name in CONTEXT_COLUMNS),
                *(f"ALTER TABLE permission_votes ADD COLUMN {name} TEXT" for name in VOTE_COLUMNS),
                # Asking looks for an approval in force, ...
                "CREATE INDEX sbx_permission_context_cover ON permission_context (cover_key)"
                " WHERE cover_key IS NOT NULL",
                # ... for one from before scopes, ...
                "CREATE INDEX sbx_permission_context_unscoped ON permission_context (subject_key)"
                " WHERE scope IS NULL",
                # ... and counts what its key has waiting.
                "CREATE INDEX sbx_permission_context_waiting ON permission_context (requested_by)"
                " WHERE pending_key IS NOT NULL",
            ],
            [
                "DROP INDEX sbx_permission_context_waiting",
                "DROP INDEX sbx_permission_context_unscoped",
                "DROP INDEX sbx_permission_context_cover",
                *(f"ALTER TABLE permission_votes DROP COLUMN {name}" for name in VOTE_COLUMNS),
                *(f"ALTER TABLE permission_context DROP COLUMN {name}" for name in CONTEXT_COLUMNS),
            ],
            [
                *(
                    migrations.AddField("permissioncontext", name, models.TextField(blank=True, null=True))
                    for name in CONTEXT_COLUMNS
                ),
                *(
                    migrations.AddField("permissionvote", name, models.TextField(blank=True, null=True))
                    for name in VOTE_COLUMNS
                ),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
