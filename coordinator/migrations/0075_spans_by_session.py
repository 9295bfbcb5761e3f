"""Where a new session's events begin is found by the session's own index (not by the primary key)."""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations import _event_spans
from coordinator.migrations._sql import step

FUNCTION = {
    "sqlite": "",
    "postgresql": _event_spans.FUNCTION.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"),
}


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0074_provider_identities")]

    operations = [
        step([FUNCTION], [FUNCTION], beside_older="the function does the same, sooner"),
    ]
