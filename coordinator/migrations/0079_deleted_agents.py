"""Ids of deleted agents. Those that the audit log still tells of are taken over."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import migrations, models
from django.utils import timezone

from coordinator.migrations._sql import safe_beside_older
from coordinator.models.fields import IsoTextField


@safe_beside_older("it fills a table that the older version does not know")
def take_over(apps: Any, _editor: Any) -> None:
    audit, agents = apps.get_model("coordinator", "AuditLog"), apps.get_model("coordinator", "Agent")
    here = set(agents.objects.values_list("pk", flat=True))
    deleted = {
        target: at
        for target, at in audit.objects.filter(event_type="AGENT_DELETED", result="success")
        .order_by("id")
        .values_list("target_id", "timestamp")
        if target and target not in here
    }
    model = apps.get_model("coordinator", "DeletedAgent")
    rows = [
        model(agent_id=target, deleted_at=at if isinstance(at, datetime) else timezone.now())
        for target, at in deleted.items()
    ]
    model.objects.bulk_create(rows)


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0078_key_storage_days")]

    operations = [
        migrations.CreateModel(
            name="DeletedAgent",
            fields=[
                ("agent_id", models.TextField(primary_key=True, serialize=False)),
                ("deleted_at", IsoTextField()),
            ],
            options={"db_table": "deleted_agents"},
        ),
        migrations.RunPython(take_over, migrations.RunPython.noop),
    ]
