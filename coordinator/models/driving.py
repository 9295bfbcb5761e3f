"""Sessions whose agent a runner of ours drives, by the Agent Client Protocol."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import JsonTextField
from coordinator.models.sessions import Session


class DrivenSession(models.Model):
    """The state of a driven session as its agent reported it.

    `last_n` is the number of the last update that was taken. `run_id` is the run whose turn is at work, None between
    turns. `mode_choices`, `model_choices`, `config_options` and `commands` are lists as the agent offers them, `plan`
    its entries, `usage` what it said last of its context and cost.
    """

    session = models.OneToOneField(
        Session,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="session_id",
        related_name="driven",
    )
    runner_id = models.TextField()
    run_id = models.TextField(null=True)
    agent = models.TextField(null=True)
    agent_session_id = models.TextField(null=True)
    agent_info = JsonTextField(null=True)
    capabilities = JsonTextField(null=True)
    mode = models.TextField(null=True)
    mode_choices = JsonTextField(null=True)
    model = models.TextField(null=True)
    model_choices = JsonTextField(null=True)
    config_options = JsonTextField(null=True)
    commands = JsonTextField(null=True)
    plan = JsonTextField(null=True)
    usage = JsonTextField(null=True)
    worktree = models.TextField(null=True)
    last_n = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "driven_sessions"

    def __str__(self) -> str:
        return f"{self.agent} in {self.pk}"


class DrivenCall(models.Model):
    """A tool call of the turn at work, as all updates of it together report it.

    `event_id` is its beginning in the timeline, None while its input is still being written; `told` the merged update,
    `output` the end of what its terminal has shown so far; `ended` once its result is written.
    """

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(
        Session,
        models.DO_NOTHING,  # the database cascades
        db_index=False,
        related_name="driven_calls",
    )
    call_id = models.TextField()
    event_id = models.BigIntegerField(null=True)
    told = JsonTextField()
    output = models.TextField(null=True)
    began_at = models.TextField()
    ended = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "driven_calls"
        constraints = [models.UniqueConstraint(fields=["session", "call_id"], name="driven_calls_once")]

    def __str__(self) -> str:
        return f"{self.call_id} of {self.session_id}"


class Draft(models.Model):
    """What a driven agent is saying right now: it becomes one event when it ends. `kind`: message, thought or user."""

    session = models.OneToOneField(
        Session,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="session_id",
        related_name="draft",
    )
    kind = models.TextField()
    message_id = models.TextField(null=True)
    text = models.TextField()
    blocks = JsonTextField(null=True)
    began_at = models.TextField()

    class Meta:
        db_table = "drafts"

    def __str__(self) -> str:
        return f"{self.kind} of {self.pk}"
