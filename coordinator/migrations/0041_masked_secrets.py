"""How many secrets were masked in an event, and the few events of a session where some were."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0040_search_terms")]

    operations = [
        step(
            [
                "ALTER TABLE event_context ADD COLUMN masked INTEGER NOT NULL DEFAULT 0",
                "CREATE INDEX sbx_event_context_masked ON event_context (session_id, masked) WHERE masked > 0",
            ],
            ["DROP INDEX sbx_event_context_masked", "ALTER TABLE event_context DROP COLUMN masked"],
            [migrations.AddField("eventcontext", "masked", models.BigIntegerField(default=0, db_default=0))],
        ),
    ]
