"""One table of jobs; housekeeping's are taken over from the leases. That table is deleted by a later version."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.utils import timezone

from coordinator.migrations._sql import safe_beside_older
from coordinator.models.fields import MsField

PREFIX = "job:"


@safe_beside_older("it fills a table that the older version does not know")
def take_over(apps: Any, schema_editor: Any) -> None:
    alias, now = schema_editor.connection.alias, timezone.now()
    leases = apps.get_model("coordinator", "Lease").objects.using(alias).filter(name__startswith=PREFIX)
    model = apps.get_model("coordinator", "Job")
    model.objects.using(alias).bulk_create(
        model(name=lease.name.removeprefix(PREFIX), next_at=lease.until, chosen_at=now) for lease in leases
    )


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0084_declined_tool_definitions")]

    operations = [
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.TextField(help_text="The kind of work.")),
                ("subject", models.TextField(blank=True, db_default="", default="")),
                ("next_at", MsField(help_text="When it is done next.")),
                ("chosen_at", MsField(help_text="When that time was chosen.")),
                (
                    "leased_by",
                    models.TextField(blank=True, help_text="The process that does it.", null=True),
                ),
                ("leased_until", MsField(blank=True, null=True)),
                (
                    "attempts",
                    models.IntegerField(
                        db_default=0, default=0, help_text="How often it was begun since it last succeeded."
                    ),
                ),
                (
                    "error",
                    models.TextField(blank=True, help_text="Why the last attempt failed.", null=True),
                ),
            ],
            options={
                "db_table": "jobs",
                "indexes": [models.Index(fields=["name", "next_at"], name="sbx_jobs_due")],
                "constraints": [models.UniqueConstraint(fields=["name", "subject"], name="jobs_once")],
            },
        ),
        migrations.RunPython(take_over, migrations.RunPython.noop),
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel("Lease")]),
    ]
