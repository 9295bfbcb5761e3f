"""Messages that wait get jobs, which say from now on when they are tried next."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import migrations
from django.utils import timezone

from coordinator.migrations._sql import safe_beside_older


@safe_beside_older("an older version leaves messages without a next attempt to whoever has their jobs")
def take_over(apps: Any, schema_editor: Any) -> None:
    alias, now = schema_editor.connection.alias, timezone.now()
    waiting = apps.get_model("coordinator", "Notification").objects.using(alias).filter(state="waiting")
    job = apps.get_model("coordinator", "Job")
    rows = [
        job(
            name="notifications:send",
            subject=str(message.pk),
            next_at=message.next_at if isinstance(message.next_at, datetime) else now,
            chosen_at=now,
            attempts=message.attempts,
            error=message.outcome if message.attempts else None,
        )
        for message in waiting
    ]
    job.objects.using(alias).bulk_create(rows, ignore_conflicts=True)
    waiting.update(next_at=None)


def give_back(apps: Any, schema_editor: Any) -> None:
    alias = schema_editor.connection.alias
    messages = apps.get_model("coordinator", "Notification").objects.using(alias)
    jobs = apps.get_model("coordinator", "Job").objects.using(alias).filter(name="notifications:send")
    for job in jobs:
        messages.filter(pk=job.subject, state="waiting").update(next_at=job.next_at, attempts=job.attempts)
    jobs.delete()


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0087_no_id_limit")]

    operations = [migrations.RunPython(take_over, give_back)]
