"""How full the limits of subscriptions are, and from which level on an address is told of it."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0093_budgets_by_place")]

    operations = [
        migrations.CreateModel(
            name="SubscriptionLimit",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("program", models.TextField()),
                ("host", models.TextField()),
                ("name", models.TextField()),
                ("window_minutes", models.BigIntegerField()),
                ("used_percent", models.FloatField()),
                ("resets_at_us", models.BigIntegerField()),
                ("reported_at_us", models.BigIntegerField()),
            ],
            options={"db_table": "subscription_limits"},
        ),
        migrations.AddConstraint(
            "subscriptionlimit",
            models.UniqueConstraint(
                fields=["program", "host", "name", "window_minutes"], name="subscription_limits_once"
            ),
        ),
        migrations.AddField(
            "notificationtarget", "limit_percent", models.IntegerField(null=True, blank=True)
        ),
    ]
