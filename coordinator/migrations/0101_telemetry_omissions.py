"""What of telemetry was left out, for the page Connections."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0100_upstream_sign_ins")]

    operations = [
        migrations.CreateModel(
            name="TelemetryOmission",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("sender", models.TextField()),
                ("service", models.TextField()),
                ("library", models.TextField()),
                ("kind", models.TextField()),
                ("name", models.TextField()),
                ("omission_count", models.BigIntegerField()),
                ("first_at_us", models.BigIntegerField()),
                ("last_at_us", models.BigIntegerField()),
            ],
            options={"db_table": "telemetry_omissions"},
        ),
        migrations.AddConstraint(
            "telemetryomission",
            models.UniqueConstraint(
                fields=["sender", "service", "library", "kind", "name"], name="telemetry_omissions_once"
            ),
        ),
    ]
