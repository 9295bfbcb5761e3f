"""The coordinator's state besides sessions and runs, kept as rows so that a restart forgets nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Self

from django.db import models

from coordinator.models.fields import IsoTextField, JsonTextField
from coordinator.models.sessions import Session

AUTONOMOUS, PROCEDURAL = "autonomous", "procedural"


# Plain SQL: every poll asks it, and Django takes longer to make it than the database to answer.
RUNNER_WITH_WORK_SQL = (
    "SELECT r.*, EXISTS (SELECT 1 FROM stop_commands s WHERE s.runner_id = r.runner_id) AS has_stops,"
    " EXISTS (SELECT 1 FROM driven_commands c WHERE c.runner_id = r.runner_id AND c.done_at IS NULL)"
    " AS has_commands,"
    " EXISTS (SELECT 1 FROM runs p WHERE p.status = 'pending') AS has_work"
    " FROM runners r WHERE r.runner_id = %s"
)


class Runner(models.Model):
    """A program that takes runs from here. Its id follows from host, directory and profile, so it keeps it."""

    runner_id = models.TextField(primary_key=True)
    hostname = models.TextField()
    project_dir = models.TextField()
    executor_profile = models.TextField()
    executor = JsonTextField(null=True)
    tags = JsonTextField(default=list)
    require_matching_tags = models.BooleanField(default=False, db_default=False)
    extra = JsonTextField(default=dict, help_text="What newer runners send beside the known fields.")
    registered_at = IsoTextField()
    last_heartbeat = IsoTextField(help_text="The last sign of life: a heartbeat, a poll or a report.")
    registered_by = models.TextField(
        null=True, help_text="The key that it registered with; no other speaks for it."
    )
    gone_at = IsoTextField(null=True, help_text="When its poll broke off; cleared by the next sign of life.")
    deregistered_at = IsoTextField(null=True, help_text="When it was told to go; its next poll says so.")

    # Added by load_runner_with_work_flags(): whether stop commands wait for it, and whether any run is pending.
    has_stops: bool
    has_commands: bool
    has_work: bool

    class Meta:
        db_table = "runners"
        ordering = ["registered_at", "runner_id"]

    def __str__(self) -> str:
        return self.runner_id

    @classmethod
    def load_runner_with_work_flags(cls, runner_id: str) -> Self | None:
        """Return the runner, if it is there, with `has_stops`, `has_commands` and `has_work`."""
        return next(iter(cls.objects.raw(RUNNER_WITH_WORK_SQL, [runner_id])), None)

    @property
    def executor_command(self) -> str | None:
        """What it starts its executors with; None where it does not say."""
        return self.executor_text_setting_or_none("command")

    @property
    def executor_type(self) -> str:
        """What its executors run: `procedural` scripts, or `autonomous` agents.

        Runners from before the two types said other words here, and all of them ran agents.
        """
        return PROCEDURAL if self.executor_text_setting_or_none("type") == PROCEDURAL else AUTONOMOUS

    @property
    def executor_lifecycle(self) -> str | None:
        """Whether its executors outlive a run (`persistent`) or not (`one_shot`); None: an older runner."""
        return self.executor_text_setting_or_none("lifecycle")

    def executor_text_setting_or_none(self, name: str) -> str | None:
        value = self.executor.get(name) if isinstance(self.executor, dict) else None
        return value if isinstance(value, str) else None

    @property
    def procedural_agents(self) -> list[dict[str, Any]]:
        """The procedural agents that it brings, each with a name."""
        agents = self.extra.get("agents") if isinstance(self.extra, dict) else None
        brought = agents if isinstance(agents, list) else []
        return [
            agent_entry
            for agent_entry in brought
            if isinstance(agent_entry, dict) and isinstance(agent_entry.get("name"), str)
        ]

    def heartbeat_age_or_max(self, now: datetime) -> timedelta:
        """Return the time since its last sign of life; timedelta.max if that cannot be read."""
        last_heartbeat = self.last_heartbeat
        return now - last_heartbeat if isinstance(last_heartbeat, datetime) else timedelta.max


class Blueprint(models.Model):
    """An agent's template: who it is, what it may use, and which runners can run it."""

    name = models.TextField(primary_key=True)
    description = models.TextField()
    system_prompt = models.TextField(null=True)
    mcp_servers = JsonTextField(null=True)
    skills = JsonTextField(null=True)
    tags = JsonTextField(default=list)
    capabilities = JsonTextField(default=list)
    demands = JsonTextField(null=True)
    type = models.TextField(null=True, help_text="`autonomous` where it does not say.")
    parameters_schema = JsonTextField(null=True, help_text="JSON Schema of a run's parameters.")
    status = models.TextField(default="active", db_default="active")
    created_at = IsoTextField()
    modified_at = IsoTextField()

    class Meta:
        db_table = "blueprints"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Capability(models.Model):
    """A piece that blueprints share: text for their prompt, MCP servers, a script that the runner has."""

    name = models.TextField(primary_key=True)
    description = models.TextField()
    type = models.TextField(
        null=True, help_text="`text`, `mcp` or `script`; told by what it has if not said."
    )
    text = models.TextField(null=True)
    script = models.TextField(null=True, help_text="The script's name, as its runner knows it.")
    mcp_servers = JsonTextField(null=True)
    created_at = IsoTextField()
    modified_at = IsoTextField()

    class Meta:
        db_table = "capabilities"
        ordering = ["name"]
        verbose_name_plural = "capabilities"

    def __str__(self) -> str:
        return self.name


class StopCommand(models.Model):
    """An order to a runner to end a run's process. Kept until the run has ended; names ids, as either may be gone."""

    id = models.BigAutoField(primary_key=True)
    runner_id = models.TextField()
    run_id = models.TextField()
    session_id = models.TextField()
    requested_at = IsoTextField()
    delivered_at = IsoTextField(null=True)
    keeps_process = models.BooleanField(
        default=False, db_default=False, help_text="The turn alone ends; the agent waits for the next prompt."
    )

    class Meta:
        db_table = "stop_commands"
        constraints = [
            models.UniqueConstraint(fields=["runner_id", "run_id"], name="sbx_stop_commands_once"),
        ]

    def __str__(self) -> str:
        return f"stop {self.run_id} on {self.runner_id}"


class Callback(models.Model):
    """The message of an ended child to its parent; sent once, when the parent is free.

    Names ids, not rows: another program may delete either session.
    """

    id = models.BigAutoField(primary_key=True)
    child_run_id = models.TextField(unique=True)
    child_session_id = models.TextField()
    parent_session_id = models.TextField()
    succeeded = models.BooleanField()
    text = models.TextField(help_text="The child's result, or why it failed.")
    created_at = IsoTextField()
    delivered_run_id = models.TextField(null=True)

    class Meta:
        db_table = "callbacks"
        indexes = [
            models.Index(
                fields=["parent_session_id"],
                condition=models.Q(delivered_run_id__isnull=True),
                name="sbx_callbacks_waiting",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.child_session_id} to {self.parent_session_id}"


class DrivenCommand(models.Model):
    """A person's command to a running session other than a prompt: another mode or model, to give up its work tree."""

    command_id = models.TextField(primary_key=True)
    session = models.ForeignKey(
        Session,
        models.DO_NOTHING,  # the database cascades
        db_index=False,
        related_name="driven_commands",
    )
    runner_id = models.TextField()
    command = JsonTextField()
    ordered_by = models.TextField()
    ordered_at = IsoTextField()
    delivered_at = IsoTextField(null=True)
    done_at = IsoTextField(null=True)
    error = models.TextField(null=True)

    class Meta:
        db_table = "driven_commands"

    def __str__(self) -> str:
        return self.command_id


class RunnerOffers(models.Model):
    """What a runner that drives agents has: its agents, the folders it may work in, how many sessions at once."""

    runner = models.OneToOneField(
        Runner,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="runner_id",
        related_name="offers",
    )
    offers = JsonTextField()

    class Meta:
        verbose_name_plural = "runner offers"
        db_table = "runner_offers"

    def __str__(self) -> str:
        return f"offers of {self.pk}"
