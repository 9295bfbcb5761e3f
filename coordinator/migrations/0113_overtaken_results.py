"""The generation of a server's cached results, and the arguments of the call whose result was cut."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0112_tool_collections"),
    ]

    operations = [
        migrations.AddField(
            model_name="storedresult",
            name="arguments",
            field=models.TextField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="CacheGeneration",
            fields=[
                ("server_id", models.TextField(primary_key=True, serialize=False)),
                ("deletions", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "generation of cached results",
                "verbose_name_plural": "generations of cached results",
                "db_table": "mcp_cache_generations",
            },
        ),
    ]
