"""Who people are at the provider of single sign-on."""

from __future__ import annotations

from django.db import migrations, models

from coordinator.models.fields import IsoTextField


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0073_stored_files")]

    operations = [
        migrations.CreateModel(
            name="ProviderIdentity",
            fields=[
                ("user_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("issuer", models.TextField()),
                ("subject", models.TextField()),
                ("made_at", IsoTextField()),
                ("last_used_at", IsoTextField()),
            ],
            options={
                "db_table": "provider_identities",
                "constraints": [
                    models.UniqueConstraint(fields=("issuer", "subject"), name="provider_identities_once")
                ],
            },
        ),
    ]
