"""Agent sessions, what happened in them, and the runs that drive them (the agent coordinator's document)."""

from __future__ import annotations

from typing import Literal

from django.db import connection, models

from coordinator.models.fields import IsoTextField, JsonTextField, MsField


class SessionStatus(models.TextChoices):
    """The status of a session. `error` is the document's sixth word, found in its text only.

    `idle` is the newest coordinator's: no run is at work, and the process that ran the last one waits for the next.
    """

    PENDING = "pending"
    RUNNING = "running"
    IDLE = "idle"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    ERROR = "error"


class RunStatus(models.TextChoices):
    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"


class Session(models.Model):
    """One conversation with an agent, from its first run to its end; runs may resume it."""

    Status = SessionStatus

    session_id = models.TextField(primary_key=True)
    status = models.TextField()
    created_at = IsoTextField()
    project_dir = models.TextField(null=True, blank=True)
    agent_name = models.TextField(null=True, blank=True)
    last_resumed_at = IsoTextField(null=True, blank=True)
    # The database sets children free (ON DELETE SET NULL); Django need not load them first.
    parent_session = models.ForeignKey(
        "self",
        models.DO_NOTHING,
        null=True,
        blank=True,
        db_index=False,
        related_name="children",
    )
    executor_session_id = models.TextField(null=True, blank=True)
    executor_profile = models.TextField(null=True, blank=True)
    hostname = models.TextField(null=True, blank=True)

    class Meta:
        db_table = "sessions"

    def __str__(self) -> str:
        return str(self.session_id)


# From one value to the next: DISTINCT would read the index of every session from end to end.
DISTINCT_VALUES = """
WITH RECURSIVE found (value) AS (
    SELECT min({column}) FROM {table}
    UNION ALL
    SELECT (SELECT min({column}) FROM {table} WHERE {column} > found.value) FROM found WHERE found.value IS NOT NULL
)
SELECT CAST(value AS TEXT) FROM found WHERE value IS NOT NULL LIMIT {most}
"""


def list_distinct_session_values(
    column: Literal["agent_name", "hostname", "person", "tag"],
    most: int,
    table: Literal["sessions", "sbx_session_figures", "sbx_session_tags"] = "sessions",
) -> list[str]:
    """Return what an indexed column of sessions, or of what is kept of them, holds anywhere, in order."""
    with connection.cursor() as cursor:
        cursor.execute(DISTINCT_VALUES.format(column=column, table=table, most=most))
        return [row[0] for row in cursor.fetchall()]


class Event(models.Model):
    """One thing that an executor reported of its session: a message, a tool call, a start, an end.

    `timestamp` is the executor's own text, byte for byte; its instant is in the event's `EventContext`.
    """

    id = models.BigAutoField(primary_key=True)
    # The database deletes a session's events (ON DELETE CASCADE): there may be 100,000 of them.
    session = models.ForeignKey(Session, models.DO_NOTHING, db_index=False, related_name="events")
    event_type = models.TextField()
    timestamp = models.TextField()
    tool_name = models.TextField(null=True, blank=True)
    tool_input = JsonTextField(null=True, blank=True)
    tool_output = JsonTextField(null=True, blank=True)
    error = models.TextField(null=True, blank=True)
    exit_code = models.BigIntegerField(null=True, blank=True)
    reason = models.TextField(null=True, blank=True)
    role = models.TextField(null=True, blank=True)
    content = JsonTextField(null=True, blank=True)

    class Meta:
        db_table = "events"

    def __str__(self) -> str:
        return f"{self.event_type} {self.pk}"


class EventContext(models.Model):
    """What the events table has no column for: one row per event that Signalbox took in.

    `instant_us` orders a timeline (ties by event id): the event's timestamp, or its receipt if unreadable.
    """

    event = models.OneToOneField(
        Event, models.DO_NOTHING, primary_key=True, db_column="event_id", related_name="context"
    )
    session_id = models.TextField()
    instant_us = models.BigIntegerField()
    received_at = MsField()
    run_id = models.TextField(null=True, blank=True)
    tool_use_id = models.TextField(null=True, blank=True)
    subagent = models.TextField(null=True, blank=True)
    prompt_id = models.TextField(null=True, blank=True)
    duration_ms = models.BigIntegerField(null=True, blank=True)
    model = models.TextField(null=True, blank=True)
    input_tokens = models.BigIntegerField(null=True, blank=True)
    output_tokens = models.BigIntegerField(null=True, blank=True)
    cache_read_tokens = models.BigIntegerField(null=True, blank=True)
    cache_write_tokens = models.BigIntegerField(null=True, blank=True)
    source = models.TextField(default="executor", db_default="executor")
    # What its source reported in addition, under the source's own names.
    extra = JsonTextField(null=True, blank=True)
    # How many secrets were masked in what is stored of it.
    masked = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "event_context"

    def __str__(self) -> str:
        return f"context of event {self.pk}"


class SessionWriter(models.Model):
    """A key that may write into a session: it made the session, or a runner that registered with it took a run."""

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(
        Session,
        models.DO_NOTHING,  # the database cascades
        db_index=False,
        related_name="writers",
    )
    writer = models.TextField()
    is_runner = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "session_writers"
        constraints = [models.UniqueConstraint(fields=["session", "writer"], name="session_writers_once")]

    def __str__(self) -> str:
        return f"{self.writer} of {self.session_id}"


class SessionTitle(models.Model):
    """What a session is about, in a few words, and who said so: a person's words stay, the agent's go before a guess.

    What was made of the first prompt (`settled` once a person had spoken) gives way to both.
    """

    class Source(models.TextChoices):
        PERSON = "person"
        AGENT = "agent"
        PROMPT = "prompt"

    session = models.OneToOneField(
        Session,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="session_id",
        related_name="own_title",
    )
    title = models.TextField()
    source = models.TextField()
    settled = models.BooleanField(default=False, db_default=False)
    set_by = models.TextField(null=True, blank=True)
    set_at = IsoTextField()

    class Meta:
        db_table = "session_titles"

    def __str__(self) -> str:
        return self.title


class SessionGuard(models.Model):
    """How many calls of a session ran without a guard, when that was last counted (`sessions.unguarded_calls`).

    `mode` is the permission mode in which its agent last said it is. `reported_at` is when people were notified.
    """

    session = models.OneToOneField(
        Session,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="session_id",
        related_name="guard",
    )
    unguarded = models.BigIntegerField(default=0, db_default=0)
    without_hook = models.BigIntegerField(default=0, db_default=0)
    mode = models.TextField(null=True, blank=True)
    counted_at = IsoTextField()
    reported_at = IsoTextField(null=True, blank=True)

    class Meta:
        db_table = "session_guards"

    def __str__(self) -> str:
        return f"{self.unguarded} of {self.pk}"


class Run(models.Model):
    """One order to an agent: start this session, or resume it, with this prompt; a runner claims it."""

    Status = RunStatus

    run_id = models.TextField(primary_key=True)
    session = models.ForeignKey(Session, models.DO_NOTHING, db_index=False, related_name="runs")
    type = models.TextField()
    agent_name = models.TextField(null=True, blank=True)
    prompt = models.TextField()
    project_dir = models.TextField(null=True, blank=True)
    parent_session_id = models.TextField(null=True, blank=True)
    execution_mode = models.TextField(default="sync", db_default="sync")
    demands = JsonTextField(null=True, blank=True)
    status = models.TextField(default="pending", db_default="pending")
    runner_id = models.TextField(null=True, blank=True)
    error = models.TextField(null=True, blank=True)
    created_at = IsoTextField()
    claimed_at = IsoTextField(null=True, blank=True)
    started_at = IsoTextField(null=True, blank=True)
    completed_at = IsoTextField(null=True, blank=True)
    timeout_at = IsoTextField(null=True, blank=True)

    class Meta:
        db_table = "runs"

    def __str__(self) -> str:
        return str(self.run_id)


class RunParameters(models.Model):
    """What a run was ordered with where that is more than a prompt: the arguments of a procedural agent."""

    run = models.OneToOneField(
        Run,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="run_id",
        related_name="ordered_with",
    )
    parameters = JsonTextField()

    class Meta:
        verbose_name_plural = "run parameters"
        db_table = "run_parameters"

    def __str__(self) -> str:
        return f"parameters of {self.pk}"


class LivingExecutor(models.Model):
    """A session's executor that outlives its runs: whose process it is, and since which run it waits.

    Only that runner can resume the session. The row goes when the process ends or its runner is gone.
    """

    session = models.OneToOneField(
        Session,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="session_id",
        related_name="living_executor",
    )
    runner_id = models.TextField()
    run_id = models.TextField()
    since = IsoTextField()

    class Meta:
        db_table = "living_executors"

    def __str__(self) -> str:
        return f"executor of {self.pk} on {self.runner_id}"


class HeldRun(models.Model):
    """A run that nobody may take until a person releases it, and why: it came from another program's database."""

    run = models.OneToOneField(
        Run,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="run_id",
        related_name="hold",
    )
    since = IsoTextField()
    why = models.TextField()

    class Meta:
        db_table = "held_runs"

    def __str__(self) -> str:
        return f"hold of {self.pk}"
