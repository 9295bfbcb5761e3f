"""Marks of danger on the cards of waiting calls, with those to begin with; what was asked before is found quickly."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.utils import timezone

import coordinator.models.fields
from coordinator.migrations._sql import step

SHELL = "Bash|Shell|exec_command|run_shell_command|bash|shell"
DELETING = r"(^|[\s;&|(`])(rm|rmdir|unlink|shred)\s|\bfind\b.*\s-delete\b|\bgit\s+clean\b"
REWRITING = r"\bgit\s+(reset\s+--hard|rebase|filter-branch)\b|\bpush\b.*\s(-f\b|--force)"
PUBLISHING = r"\bgit\s+push\b|\b(npm|yarn|pnpm|cargo|gem)\s+publish\b|\b(twine\s+upload|docker\s+push)\b"
SECRETS = r"(^|[/\s'\"=])\.env\b|\bid_(rsa|ed25519|ecdsa)\b|(\.aws|\.ssh)/|\.(netrc|pem)\b|(?i:credentials)"
FIRST = (
    ("Deletes files", SHELL, DELETING),
    ("Rewrites history or discards work", SHELL, REWRITING),
    ("Publishes or pushes", SHELL, PUBLISHING),
    ("Uses the network", SHELL, r"(^|[\s;&|(`])(curl|wget|nc|ncat|ssh|scp|sftp|rsync|ftp)\s"),
    ("Runs what it downloads", SHELL, r"\b(curl|wget)\b[^|;]*\|\s*(sudo\s+)?(ba|z|da)?sh\b"),
    (
        "Acts as another user or changes permissions",
        SHELL,
        r"(^|[\s;&|(`])(sudo|su|doas|chmod|chown|setfacl)\s",
    ),
    (
        "Changes a system or a cluster",
        SHELL,
        r"\b(systemctl|kubectl|terraform|helm|docker|podman|ansible\w*)\s",
    ),
    (
        "Drops or empties tables",
        "*",
        r"(?i)\b(drop\s+(table|database|schema)|truncate\s+table|delete\s+from)\b",
    ),
    ("Touches secrets", "*", SECRETS),
)


def write_first(apps: Any, schema_editor: Any) -> None:
    rows, now = apps.get_model("coordinator", "DangerMark").objects, timezone.now()
    rows.using(schema_editor.connection.alias).bulk_create(
        rows.model(reason=reason, tool=tool, pattern=pattern, changed_at=now, changed_by="system:signalbox")
        for reason, tool, pattern in FIRST
    )


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0059_driven_sessions")]

    operations = [
        migrations.CreateModel(
            "DangerMark",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("reason", models.TextField()),
                ("tool", models.TextField(db_default="*", default="*")),
                ("pattern", models.TextField()),
                ("changed_at", coordinator.models.fields.IsoTextField()),
                ("changed_by", models.TextField()),
            ],
            {"db_table": "danger_marks"},
        ),
        migrations.RunPython(write_first, migrations.RunPython.noop),
        step(
            [
                "CREATE INDEX sbx_permission_context_ended ON permission_context (subject_key)"
                " WHERE closed_at IS NOT NULL"
            ],
            ["DROP INDEX sbx_permission_context_ended"],
            [],
        ),
    ]
