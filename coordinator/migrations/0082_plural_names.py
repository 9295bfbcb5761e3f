"""Plural names of tables, as the admin shows them."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0081_who_waits"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="auditdelivery",
            options={"verbose_name_plural": "audit deliveries"},
        ),
        migrations.AlterModelOptions(
            name="auditleaf",
            options={"managed": False, "verbose_name_plural": "audit leaves"},
        ),
        migrations.AlterModelOptions(
            name="chatbranch",
            options={"verbose_name_plural": "chat branches"},
        ),
        migrations.AlterModelOptions(
            name="gatewayfigures",
            options={"verbose_name_plural": "gateway figures"},
        ),
        migrations.AlterModelOptions(
            name="mcpprocess",
            options={"verbose_name_plural": "MCP processes"},
        ),
        migrations.AlterModelOptions(
            name="mcpupstream",
            options={"verbose_name": "MCP upstream", "verbose_name_plural": "MCP upstreams"},
        ),
        migrations.AlterModelOptions(
            name="provideridentity",
            options={"verbose_name_plural": "provider identities"},
        ),
        migrations.AlterModelOptions(
            name="quiethours",
            options={"verbose_name_plural": "quiet hours"},
        ),
        migrations.AlterModelOptions(
            name="runneroffers",
            options={"verbose_name_plural": "runner offers"},
        ),
        migrations.AlterModelOptions(
            name="runparameters",
            options={"verbose_name_plural": "run parameters"},
        ),
    ]
