"""Collections: chosen tools of several MCP servers, served at one address."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.models.fields import IsoTextField, JsonTextField


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0111_result_hosts"),
    ]

    operations = [
        migrations.CreateModel(
            name="ToolCollection",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("description", models.TextField(blank=True)),
                ("tools", JsonTextField(db_default=models.Value("[]"), default=list)),
                ("changed_by", models.TextField()),
                ("changed_at", IsoTextField()),
            ],
            options={
                "db_table": "tool_collections",
            },
        ),
    ]
