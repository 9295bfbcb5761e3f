"""The use of each request to a model, its cost at the price of its day, and the models' prices."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from coordinator.models.fields import IsoTextField


class ModelRequestUsage(models.Model):
    """One request to a model. All sums of tokens and money come from these rows.

    The row stays when its session is deleted: what was used was used.
    """

    id = models.BigAutoField(primary_key=True)
    # By what the request is known again: the origin of its event, which names the message or request.
    request_key = models.TextField(unique=True)
    event_id = models.BigIntegerField(null=True, unique=True)
    session_id = models.TextField()
    subagent = models.TextField(null=True)  # within the session; None: the session's own agent
    at_us = models.BigIntegerField()  # when, in microseconds since 1970 (UTC)
    day = models.TextField()  # of `at_us` in the installation's time zone: that in `usage_days`
    model = models.TextField()
    provider = models.TextField(null=True)
    input_tokens = models.BigIntegerField()  # neither read from a cache nor written to one
    output_tokens = models.BigIntegerField()  # with reasoning
    cache_read_tokens = models.BigIntegerField()
    cache_write_5m_tokens = models.BigIntegerField()
    cache_write_1h_tokens = models.BigIntegerField()
    reasoning_tokens = models.BigIntegerField()  # part of the output
    tool_tokens = models.BigIntegerField()  # part of the input
    web_searches = models.BigIntegerField()
    is_fast = models.BooleanField()
    is_batch = models.BooleanField()
    is_long_context = models.BooleanField()  # more than 200,000 tokens in
    cost = models.FloatField(null=True)  # US dollars; None: no price is known
    source = models.TextField()

    class Meta:
        db_table = "usage_requests"
        indexes = [
            models.Index(fields=["at_us"], name="usage_requests_time"),
            models.Index(fields=["session_id", "day", "model"], name="usage_requests_session"),
            models.Index(fields=["model"], name="usage_requests_unpriced", condition=Q(cost__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.model} in {self.session_id}"


class UsageFill(models.Model):
    """How far events of before are counted: those with ids up to `next_id` are not yet. No row: all are."""

    id = models.BigAutoField(primary_key=True)
    next_id = models.BigIntegerField()
    first_id = models.BigIntegerField()  # where it began: the newest event of before

    class Meta:
        db_table = "usage_fill"

    def __str__(self) -> str:
        return f"up to {self.next_id}"


class UsageDay(models.Model):
    """What a session used of one model on one day: kept up with its events, and kept when the session is deleted.

    Calls are counted under the model ''. `day` is `2026-11-22` in the installation's time zone: that of the request's
    or the call's own time. `agent`, `program`, `person`, `hostname` and `project_dir` are the session's. `cost`
    is the sum of the requests' costs, without `unpriced_tokens`; None on days that an older version has counted.
    """

    id = models.BigAutoField(primary_key=True)
    day = models.TextField()
    session_id = models.TextField()
    model = models.TextField()
    agent = models.TextField(null=True)
    program = models.TextField(null=True)
    person = models.TextField(null=True)
    hostname = models.TextField(null=True)
    project_dir = models.TextField(null=True)
    calls = models.BigIntegerField()
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    cache_read_tokens = models.BigIntegerField()
    cache_write_tokens = models.BigIntegerField()
    cost = models.FloatField(null=True)
    unpriced_tokens = models.BigIntegerField(db_default=0, default=0)

    class Meta:
        db_table = "usage_days"
        constraints = [models.UniqueConstraint(fields=["day", "session_id", "model"], name="usage_days_once")]
        indexes = [models.Index(fields=["session_id"], name="usage_days_of_session")]

    def __str__(self) -> str:
        return f"{self.session_id} on {self.day}"


class ActivityHour(models.Model):
    """How often one agent called one tool within an hour, how often that failed, and how long it took.

    Counted from the events by the hour of their receipt (`actions.usage.activity`), and kept when they are deleted.
    """

    id = models.BigAutoField(primary_key=True)
    hour = models.BigIntegerField()  # in hours since 1970 (UTC)
    agent_name = models.TextField()  # the session's; "": it has none
    tool_name = models.TextField()
    calls = models.BigIntegerField()
    failed = models.BigIntegerField()
    # Calls by how long they took, each under the least bound; those of which that is not known are in none.
    within_10ms = models.BigIntegerField(default=0)
    within_50ms = models.BigIntegerField(default=0)
    within_100ms = models.BigIntegerField(default=0)
    within_200ms = models.BigIntegerField(default=0)
    within_500ms = models.BigIntegerField(default=0)
    within_1s = models.BigIntegerField(default=0)
    within_2s = models.BigIntegerField(default=0)
    within_5s = models.BigIntegerField(default=0)
    within_10s = models.BigIntegerField(default=0)
    within_30s = models.BigIntegerField(default=0)
    within_1m = models.BigIntegerField(default=0)
    within_5m = models.BigIntegerField(default=0)
    within_30m = models.BigIntegerField(default=0)
    longer = models.BigIntegerField(default=0)

    class Meta:
        db_table = "activity_hours"
        constraints = [
            models.UniqueConstraint(fields=["hour", "agent_name", "tool_name"], name="activity_hours_once")
        ]
        indexes = [models.Index(fields=["agent_name", "hour"], name="activity_hours_agent")]

    def __str__(self) -> str:
        return f"{self.calls} of {self.tool_name} by {self.agent_name}"


class CountedHour(models.Model):
    """When the calls of an hour were counted last, and how long counting took."""

    hour = models.BigIntegerField(primary_key=True)
    counted_at = IsoTextField()
    took_ms = models.BigIntegerField()

    class Meta:
        db_table = "counted_hours"

    def __str__(self) -> str:
        return str(self.hour)


WINDOW_LABELS = {300: "5 hours", 1440: "a day", 10080: "a week", 43200: "30 days"}


class SubscriptionLimit(models.Model):
    """How full one window of a subscription's limit is, as a program on a host reported it last."""

    id = models.BigAutoField(primary_key=True)
    program = models.TextField()
    host = models.TextField()  # "": not known
    name = models.TextField()  # of the limit, where the program has several; "": its main one
    window_minutes = models.BigIntegerField()
    used_percent = models.FloatField()
    resets_at_us = models.BigIntegerField()  # when the window ends, in microseconds since 1970 (UTC)
    reported_at_us = models.BigIntegerField()

    class Meta:
        db_table = "subscription_limits"
        constraints = [
            models.UniqueConstraint(
                fields=["program", "host", "name", "window_minutes"], name="subscription_limits_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.program} on {self.host}"

    @property
    def window_label(self) -> str:
        """The length of its window, such as `5 hours` or `a week`."""
        hours, minutes = divmod(self.window_minutes, 60)
        return WINDOW_LABELS.get(self.window_minutes) or (
            f"{self.window_minutes} minutes" if minutes else f"{hours} hours"
        )


class ModelPrice(models.Model):
    """What a million tokens of one model cost, in US dollars. Editable: prices change, and contracts differ."""

    model = models.TextField(primary_key=True)
    input = models.FloatField()
    output = models.FloatField()
    cache_read = models.FloatField()
    cache_write = models.FloatField()
    changed_at = IsoTextField()
    changed_by = models.TextField()

    class Meta:
        db_table = "model_prices"

    def __str__(self) -> str:
        return self.model
