"""Each plugin's granted permissions."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import JsonTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0001_init")]

    operations = [
        step(
            ["ALTER TABLE plugin_settings ADD COLUMN allowed_permissions TEXT DEFAULT '[]'"],
            ["ALTER TABLE plugin_settings DROP COLUMN allowed_permissions"],
            [
                migrations.AddField(
                    "PluginSetting",
                    "allowed_permissions",
                    JsonTextField(blank=True, db_default=models.Value("[]"), default=list, null=True),
                ),
            ],
        ),
    ]
