"""Rights to decide: the rows that name people for kinds of requests, and rights that are handed over for a while."""

from __future__ import annotations

from datetime import datetime

from django.db import models

from coordinator.models.fields import IsoTextField, JsonTextField


class DecidingRule(models.Model):
    """One row of "Who decides"; of several that fit a request the first by `position` counts.

    `permission_type`, `tool`, `server`, `agent` and `host` are patterns as tool rules write them; nothing means any.
    `groups` and `people` are lists of ids (auth_group, auth_user) of those who may decide; both empty leaves it to
    every approver. `needed` is how many different people must approve, 1 or 2.
    """

    id = models.BigAutoField(primary_key=True)
    position = models.BigIntegerField()
    permission_type = models.TextField(default="", db_default="", blank=True)
    tool = models.TextField(default="", db_default="", blank=True)
    server = models.TextField(default="", db_default="", blank=True)
    agent = models.TextField(default="", db_default="", blank=True)
    host = models.TextField(default="", db_default="", blank=True)
    groups = JsonTextField(default=list)
    people = JsonTextField(default=list)
    needed = models.IntegerField(default=1, db_default=1)
    changed_at = IsoTextField()
    changed_by = models.TextField()

    class Meta:
        db_table = "deciding_rules"

    def __str__(self) -> str:
        term_values = (self.permission_type, self.tool, self.server, self.agent, self.host)
        return " ".join(term for term in term_values if term) or "every request"


class DelegationQuerySet(models.QuerySet["Delegation"]):
    def current_or_upcoming(self, now: datetime) -> DelegationQuerySet:
        """Keep those that hold at `now` or begin later: not revoked, not over."""
        return self.filter(revoked_at__isnull=True, ends_at__gt=now)


class Delegation(models.Model):
    """A person hands their right to decide to another, from `starts_at` until before `ends_at`; ids of auth_user.

    The row of somebody who was deleted since gives nobody a right.
    """

    id = models.BigAutoField(primary_key=True)
    giver_id = models.BigIntegerField()
    receiver_id = models.BigIntegerField()
    starts_at = IsoTextField()
    ends_at = IsoTextField()
    reason = models.TextField(default="", db_default="", blank=True)
    made_at = IsoTextField()
    made_by = models.TextField()
    revoked_at = IsoTextField(null=True, blank=True)
    revoked_by = models.TextField(null=True, blank=True)

    objects = DelegationQuerySet.as_manager()

    class Meta:
        db_table = "delegations"

    def __str__(self) -> str:
        return f"delegation {self.pk}"


class RightsVersion(models.Model):
    """One row, counted up in the transaction of every change to who may decide what.

    A decision holds it, so that no right is lost between being checked and being used; the feed notifies pages of it.
    """

    id = models.BigAutoField(primary_key=True)
    number = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "rights_version"

    def __str__(self) -> str:
        return f"rights, version {self.number}"
