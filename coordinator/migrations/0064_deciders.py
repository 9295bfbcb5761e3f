"""Who decides what: rows that name people, rights handed over for a while, and with whose right a vote was given."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

import coordinator.models.fields
from coordinator.migrations._sql import remove_feed_triggers, step

TERMS = ("permission_type", "tool", "server", "agent", "host")


def write_first(apps: Any, schema_editor: Any) -> None:
    rows = apps.get_model("coordinator", "RightsVersion").objects
    rows.using(schema_editor.connection.alias).create(id=1)


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0063_mcp_processes"),
    ]

    operations = [
        migrations.CreateModel(
            name="DecidingRule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField()),
                *((name, models.TextField(blank=True, db_default="", default="")) for name in TERMS),
                ("groups", coordinator.models.fields.JsonTextField(default=list)),
                ("people", coordinator.models.fields.JsonTextField(default=list)),
                ("needed", models.IntegerField(db_default=1, default=1)),
                ("changed_at", coordinator.models.fields.IsoTextField()),
                ("changed_by", models.TextField()),
            ],
            options={"db_table": "deciding_rules"},
        ),
        migrations.CreateModel(
            name="Delegation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("giver_id", models.BigIntegerField()),
                ("receiver_id", models.BigIntegerField()),
                ("starts_at", coordinator.models.fields.IsoTextField()),
                ("ends_at", coordinator.models.fields.IsoTextField()),
                ("reason", models.TextField(blank=True, db_default="", default="")),
                ("made_at", coordinator.models.fields.IsoTextField()),
                ("made_by", models.TextField()),
                ("revoked_at", coordinator.models.fields.IsoTextField(blank=True, null=True)),
                ("revoked_by", models.TextField(blank=True, null=True)),
            ],
            options={"db_table": "delegations"},
        ),
        migrations.CreateModel(
            name="RightsVersion",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("number", models.BigIntegerField(db_default=0, default=0)),
            ],
            options={"db_table": "rights_version"},
        ),
        migrations.RunPython(write_first, migrations.RunPython.noop),
        step(
            [
                "ALTER TABLE permission_context ADD COLUMN decided_for TEXT",
                "ALTER TABLE permission_votes ADD COLUMN right_of TEXT",
            ],
            [
                "ALTER TABLE permission_votes DROP COLUMN right_of",
                "ALTER TABLE permission_context DROP COLUMN decided_for",
            ],
            [
                migrations.AddField(
                    "permissioncontext", "decided_for", models.TextField(blank=True, null=True)
                ),
                migrations.AddField("permissionvote", "right_of", models.TextField(blank=True, null=True)),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
