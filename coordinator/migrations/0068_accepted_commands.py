"""Which command of a stdio MCP server an admin accepted last. One that was switched on before is accepted once."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0067_session_keys")]

    operations = [
        migrations.AddField("mcpupstream", "accepted_command", models.TextField(blank=True, null=True)),
    ]
