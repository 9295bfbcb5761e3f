"""Rules for the tools of coding agents, and what a person adds to a verdict (edited input, picked suggestions)."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models import fields


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0036_event_origins")]

    operations = [
        step(
            ["ALTER TABLE permission_context ADD COLUMN answer TEXT"],
            ["ALTER TABLE permission_context DROP COLUMN answer"],
            [migrations.AddField("permissioncontext", "answer", fields.JsonTextField(blank=True, null=True))],
        ),
        migrations.CreateModel(
            name="ToolRule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField()),
                ("tool", models.TextField()),
                ("pattern", models.TextField(blank=True, db_default="", default="")),
                (
                    "verdict",
                    models.TextField(
                        choices=[
                            ("allow", "Allow"),
                            ("deny", "Deny"),
                            ("ask", "Ask a person"),
                            ("observe", "Only observe"),
                        ]
                    ),
                ),
                ("agents", fields.JsonTextField(blank=True, null=True)),
                ("reason", models.TextField(blank=True, db_default="", default="")),
                ("wait_seconds", models.BigIntegerField(blank=True, null=True)),
                ("deny_at_deadline", models.BooleanField(db_default=False, default=False)),
                ("changed_at", fields.IsoTextField()),
                ("changed_by", models.TextField()),
            ],
            options={"db_table": "tool_rules"},
        ),
    ]
