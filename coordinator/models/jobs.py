"""The one table of work that any worker may do: what is due when, who does it, and what went wrong last."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.db.models import Q

from coordinator.models.fields import MsField

# For so long a dead worker's job is done by nobody. A living worker renews the leases of its jobs.
LEASE = timedelta(seconds=30)
CLOCK_SKEW = timedelta(seconds=60)  # by which the clocks of machines on one database may differ


class JobQuerySet(models.QuerySet["Job"]):
    def due_at(self, now: datetime) -> JobQuerySet:
        """Keep those that nobody does and whose time has come.

        A time that was chosen in the future was chosen before the clock was set back: it says nothing any more.
        """
        return self.filter(
            Q(next_at__lte=now) | Q(chosen_at__gt=now + CLOCK_SKEW),
            Q(leased_until__isnull=True) | Q(leased_until__lte=now),
        )

    def with_overlong_lease(self, now: datetime) -> JobQuerySet:
        """Keep those whose lease ends later than any that is taken now: the clock was set back meanwhile."""
        return self.filter(leased_until__gt=now + LEASE + CLOCK_SKEW)

    def overdue_at(self, now: datetime, by: timedelta) -> JobQuerySet:
        """Keep those that nobody does although their time came `by` ago."""
        return self.filter(
            Q(leased_until__isnull=True) | Q(leased_until__lte=now - by), next_at__lte=now - by
        )


class Job(models.Model):
    """A piece of work: again and again (housekeeping), or once (a message), then its row is deleted.

    `subject` is what it is about, such as the id of a message. There is one job of each name and subject. Who holds
    its lease does it; actions.upkeep.jobs says what is guaranteed.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.TextField(help_text="The kind of work.")
    subject = models.TextField(default="", db_default="", blank=True)
    next_at = MsField(help_text="When it is done next.")
    chosen_at = MsField(help_text="When that time was chosen.")
    leased_by = models.TextField(null=True, blank=True, help_text="The process that does it.")
    leased_until = MsField(null=True, blank=True)
    attempts = models.IntegerField(
        default=0, db_default=0, help_text="How often it was begun since it last succeeded."
    )
    error = models.TextField(null=True, blank=True, help_text="Why the last attempt failed.")

    objects = JobQuerySet.as_manager()

    class Meta:
        db_table = "jobs"
        constraints = [models.UniqueConstraint(fields=["name", "subject"], name="jobs_once")]
        indexes = [models.Index(fields=["name", "next_at"], name="sbx_jobs_due")]

    def __str__(self) -> str:
        return f"{self.name} {self.subject}".strip()
