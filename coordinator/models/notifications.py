"""Notifications of people: their addresses, quiet hours, escalation, and the outcome of each message."""

from __future__ import annotations

from django.contrib.auth.models import Group
from django.db import models

from coordinator.models.fields import IsoTextField
from coordinator.models.permissions import PermissionRequest

QUIET = "kept back until your quiet hours end"


class NotificationTargetQuerySet(models.QuerySet["NotificationTarget"]):
    def without_ended_devices(self) -> NotificationTargetQuerySet:
        """Keep those that messages can be sent to: no device that has ended its subscription."""
        return self.filter(push__ended_at__isnull=True)


class NotificationTarget(models.Model):
    """One address of one person.

    `webhook`: `address` is its URL; `secret` signs what is sent there and is shown once, to its owner.
    `apprise`: `secret` is the sealed address, `address` a keyed digest of it, and `shown` what people see of it.
    `about` and `patterns` say of which requests it is notified (coordinator.notifications.filters).
    """

    class Kind(models.TextChoices):
        WEBHOOK = "webhook"
        EMAIL = "email"
        APPRISE = "apprise", "Service"
        PUSH = "push"

    class About(models.TextChoices):
        """Of which requests an address is notified."""

        EVERYTHING = "everything", "Every request, and budgets"
        MARKED = "marked", "Only calls marked as dangerous"
        TYPES = "types", "Only these permission types"
        TOOLS = "tools", "Only these tools"
        BUDGETS = "budgets", "Only budgets"

    id = models.BigAutoField(primary_key=True)
    person = models.TextField()
    kind = models.TextField()
    address = models.TextField()
    secret = models.TextField(null=True, blank=True)
    created_at = IsoTextField()
    name = models.TextField(blank=True, default="", db_default="")
    shown = models.TextField(null=True, blank=True)
    about = models.TextField(default="everything", db_default="everything")
    patterns = models.TextField(blank=True, default="", db_default="")
    # From how many percent of a subscription's limit on it is notified; None: never.
    limit_percent = models.IntegerField(null=True, blank=True)

    objects = NotificationTargetQuerySet.as_manager()

    class Meta:
        db_table = "notification_targets"
        constraints = [
            models.UniqueConstraint(fields=["person", "kind", "address"], name="notification_targets_once")
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.person}"


class Notification(models.Model):
    """One message to one address: the log that its owner sees. An empty `request_id` is a test message.

    The job of a message that waits says when it is tried next; `next_at` is an older version's.

    In one about a budget `request_id` is `budget:` and the id of its mark (BudgetMark), in one about
    a subscription's limit `limit:` and the id of the SubscriptionLimit, in one about unguarded calls `session:` and the
    id of their session, in one about a sign-in at an MCP server `sign-in:` and the id of the McpAccessToken.
    """

    class State(models.TextChoices):
        """What became of it; `dropped`: there was no point in sending it any more."""

        WAITING = "waiting"
        SENT = "sent"
        FAILED = "failed"
        DROPPED = "dropped"

    class NotifiedEvent(models.TextChoices):
        """What it is about: a request, a budget, a limit, a call without a guard, or a needed sign-in."""

        ASKED = "asked"
        ESCALATED = "escalated"
        SETTLED = "settled"
        BUDGET = "budget"
        LIMIT = "limit"
        UNGUARDED = "unguarded"
        SIGN_IN = "sign in"

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
    event = models.TextField(default="asked", db_default="asked")

    class Meta:
        db_table = "notification_log"
        constraints = [
            models.UniqueConstraint(
                fields=["target", "request_id"],
                condition=models.Q(event="settled"),
                name="notification_log_settled_once",
            )
        ]

    def __str__(self) -> str:
        return f"notification {self.pk} ({self.state})"

    @property
    def session_id(self) -> str:
        """The session of a message about unguarded calls."""
        return str(self.request_id).removeprefix("session:")


class QuietHours(models.Model):
    """When a person is not notified: each day from `begins` to `ends` ("22:00", "07:00") on the clocks of `zone`."""

    person = models.TextField(primary_key=True)
    zone = models.TextField()
    begins = models.TextField()
    ends = models.TextField()

    class Meta:
        verbose_name_plural = "quiet hours"
        db_table = "quiet_hours"

    def __str__(self) -> str:
        return f"quiet hours of {self.person}"


class NotificationChoice(models.Model):
    """Of what, in addition to requests, a person is notified. Without a row, of everything."""

    person = models.TextField(primary_key=True)
    unguarded = models.BooleanField(default=True, db_default=True)

    class Meta:
        db_table = "notification_choices"

    def __str__(self) -> str:
        return f"notification choice of {self.person}"


class EscalationStep(models.Model):
    """Whom to notify of a request that nobody has closed `after_minutes` after it was made: a group or one person.

    A step after 0 minutes says who is notified at once.
    """

    id = models.BigAutoField(primary_key=True)
    after_minutes = models.IntegerField()
    group = models.ForeignKey(
        Group,
        models.DO_NOTHING,  # the database cascades
        null=True,
        blank=True,
        db_index=False,
        related_name="+",
    )
    person = models.TextField(null=True, blank=True)
    created_at = IsoTextField()
    created_by = models.TextField()

    class Meta:
        db_table = "escalation_steps"
        ordering = ["after_minutes", "id"]

    def __str__(self) -> str:
        return f"escalation after {self.after_minutes} minutes"


class Escalation(models.Model):
    """A step that was taken for a request: the process that writes the row sends its messages, so it is taken once."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey(
        PermissionRequest,
        models.DO_NOTHING,  # the database cascades
        to_field="request_id",
        db_column="request_id",
        db_index=False,
        related_name="escalations",
    )
    step = models.ForeignKey(
        EscalationStep,
        models.DO_NOTHING,  # likewise
        db_index=False,
        related_name="taken",
    )
    at = IsoTextField()
    messages = models.IntegerField()

    class Meta:
        db_table = "escalations"
        constraints = [models.UniqueConstraint(fields=["request", "step"], name="escalations_once")]

    def __str__(self) -> str:
        return f"escalation of {self.request_id}"
