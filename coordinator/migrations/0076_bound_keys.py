"""Keys bound to several agents, and whether this installation lets keys in that are bound to none."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.utils import timezone

from coordinator.migrations._sql import remove_feed_triggers, safe_beside_older
from coordinator.models.fields import IsoTextField, JsonTextField


@safe_beside_older("it writes one row into a table that they do not know")
def accept_unbound_keys_where_there_are_keys(apps: Any, schema_editor: Any) -> None:
    """Let databases that have keys go on accepting unbound ones, until an administrator binds them."""
    alias = schema_editor.connection.alias
    if apps.get_model("coordinator", "ApiKey").objects.using(alias).exists():
        apps.get_model("coordinator", "InstallationSetting").objects.using(alias).create(
            name="unbound_agent_keys",
            value="allow",
            changed_at=timezone.now(),
            changed_by="system:migration",
        )


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0075_spans_by_session")]

    operations = [
        migrations.AddField("apikey", "agent_ids", JsonTextField(blank=True, null=True)),
        migrations.CreateModel(
            name="InstallationSetting",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("value", models.TextField()),
                ("changed_at", IsoTextField()),
                ("changed_by", models.TextField()),
            ],
            options={"db_table": "installation_settings"},
        ),
        migrations.RunPython(accept_unbound_keys_where_there_are_keys, remove_feed_triggers),
    ]
