"""Where a person is notified of waiting requests, and the outcome of each message."""

from __future__ import annotations

from datetime import datetime

from django.db import models

from coordinator.models.fields import IsoTextField


class NotificationTarget(models.Model):
    """One address of one person. A webhook's secret signs what is sent there; it is shown once, to its owner."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook"
        EMAIL = "email"

    id = models.BigAutoField(primary_key=True)
    person = models.TextField()
    kind = models.TextField()
    address = models.TextField()
    secret = models.TextField(null=True, blank=True)
    created_at = IsoTextField()

    class Meta:
        db_table = "notification_targets"
        constraints = [
            models.UniqueConstraint(fields=["person", "kind", "address"], name="notification_targets_once")
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.person}"


class NotificationQuerySet(models.QuerySet["Notification"]):
    def due(self, now: datetime) -> NotificationQuerySet:
        """Keep those whose time to be tried has come."""
        return self.filter(state=Notification.State.WAITING, next_at__lte=now)


class Notification(models.Model):
    """One message to one address: the log that its owner sees. An empty `request_id` is a test message."""

    class State(models.TextChoices):
        """What became of it; `dropped`: the request was decided before the message got through."""

        WAITING = "waiting"
        SENT = "sent"
        FAILED = "failed"
        DROPPED = "dropped"

    id = models.BigAutoField(primary_key=True)
    target = models.ForeignKey(
        NotificationTarget,
        models.DO_NOTHING,  # the database cascades
        db_index=False,
        related_name="notifications",
    )
    request_id = models.TextField()
    created_at = IsoTextField()
    state = models.TextField(default="waiting", db_default="waiting")
    attempts = models.IntegerField(default=0, db_default=0)
    next_at = IsoTextField(null=True, blank=True)
    sent_at = IsoTextField(null=True, blank=True)
    outcome = models.TextField(null=True, blank=True)

    objects = NotificationQuerySet.as_manager()

    class Meta:
        db_table = "notification_log"

    def __str__(self) -> str:
        return f"notification {self.pk} ({self.state})"
