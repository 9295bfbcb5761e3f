"""Budgets by host, folder and model, for weeks and months: sums by day name their session's host and folder."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import migrations, models
from django.utils import timezone

from coordinator.migrations._sql import safe_beside_older

COUNTED_BACK = timedelta(days=32)  # the longest period of a budget


@safe_beside_older("it fills columns that the older version does not know")
def fill_places(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Let what was used in the current month count for the hosts and folders of its sessions."""
    since = (timezone.now() - COUNTED_BACK).date().isoformat()
    place = "(SELECT s.{0} FROM sessions s WHERE s.session_id = usage_days.session_id)"
    columns = ", ".join(f"{name} = {place.format(name)}" for name in ("hostname", "project_dir"))
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f"UPDATE usage_days SET {columns} WHERE day >= %s", [since])


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0092_rules_off_and_dismissed_suggestions")]

    operations = [
        migrations.AddField("usageday", "hostname", models.TextField(null=True)),
        migrations.AddField("usageday", "project_dir", models.TextField(null=True)),
        migrations.AlterField(
            "budget",
            "reach",
            models.TextField(
                choices=[
                    ("everything", "Everything"),
                    ("agent", "One agent"),
                    ("person", "One person"),
                    ("host", "One host"),
                    ("folder", "One folder and those below it"),
                    ("model", "One model"),
                ]
            ),
        ),
        migrations.AlterField(
            "budget",
            "span",
            models.TextField(
                choices=[
                    ("day", "A day"),
                    ("week", "A week (from Monday)"),
                    ("month", "A calendar month"),
                    ("session", "Each session"),
                ]
            ),
        ),
        migrations.RunPython(fill_places, migrations.RunPython.noop),
    ]
