"""The trail that remains."""

from __future__ import annotations

from datetime import timedelta

from django.db import models

from coordinator.models.fields import IsoTextField, JsonTextField

AUDIT_RETENTION = timedelta(days=90)  # as the table's own trigger has it (migration 0009)


class AuditLog(models.Model):
    """Who did, or was refused, what to which thing. A trigger of the table itself deletes after AUDIT_RETENTION.

    Unmanaged: table, indexes and trigger are SQL of our migrations, and Django must never remake them.
    """

    id = models.BigAutoField(primary_key=True)
    timestamp = IsoTextField()
    event_type = models.TextField()
    actor_id = models.TextField(null=True, blank=True)
    target_id = models.TextField(null=True, blank=True)
    permission = models.TextField(null=True, blank=True)
    result = models.TextField()
    reason = models.TextField(null=True, blank=True)
    metadata = JsonTextField(null=True, blank=True)
    trace_id = models.TextField(null=True, blank=True)

    class Meta:
        db_table = "audit_logs"
        managed = False

    def __str__(self) -> str:
        return f"{self.event_type} {self.pk}"
