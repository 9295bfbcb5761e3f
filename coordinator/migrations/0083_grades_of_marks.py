"""Marks of danger have a grade; those to begin with that nobody has changed are graded, and some are added."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.utils import timezone

from coordinator.migrations._sql import safe_beside_older

BY = "system:signalbox"
SHELL = "Bash|Shell|exec_command|run_shell_command|bash|shell"
DANGERS = ("Runs what it downloads", "Drops or empties tables")
ADDED = (
    (
        "Deletes by an absolute or unknown path",
        SHELL,
        r"(^|[\s;&|(`])(rm|shred)\s(.*\s)?[\"']?(/|~|\$)",
    ),
    (
        "Deletes in a cloud, a cluster or a bucket",
        SHELL,
        r"\b(aws|gsutil|gcloud|az|s3cmd|rclone)\b.*\b(rm|rb|delete\S*|purge|terminate\S*)\b"
        r"|\b(kubectl|helm|oc)\b.*\b(delete|uninstall)\b|\bterraform\b.*\bdestroy\b",
    ),
    ("Overwrites a disk or a file system", SHELL, r"(^|[\s;&|(`])(mkfs\S*|dd\s.*\bof=/dev/|wipefs)"),
)


@safe_beside_older("it fills a column that the older version does not know, and adds rows as an admin may")
def grade(apps: Any, schema_editor: Any) -> None:
    model = apps.get_model("coordinator", "DangerMark")
    rows, now = model.objects.using(schema_editor.connection.alias), timezone.now()
    rows.filter(changed_by=BY, reason__in=DANGERS).update(grade="danger")
    rows.bulk_create(
        model(reason=reason, tool=tool, pattern=pattern, grade="danger", changed_at=now, changed_by=BY)
        for reason, tool, pattern in ADDED
    )


def take_back(apps: Any, schema_editor: Any) -> None:
    rows = apps.get_model("coordinator", "DangerMark").objects.using(schema_editor.connection.alias)
    rows.filter(changed_by=BY, reason__in=[reason for reason, _tool, _pattern in ADDED]).delete()


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0082_plural_names")]

    operations = [
        migrations.AddField(
            "dangermark",
            "grade",
            models.TextField(
                choices=[("caution", "Caution"), ("danger", "Danger")],
                db_default="caution",
                default="caution",
            ),
        ),
        migrations.RunPython(grade, take_back),
    ]
