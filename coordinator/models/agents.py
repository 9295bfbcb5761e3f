"""Agents, which plugins each of them uses, and by which other names they are known."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField, JsonTextField, MsField


def default_capabilities() -> list[str]:
    """Return what an agent needs unless it says otherwise; the column's own default says the same."""
    return ["Reasoning", "Memory"]


class Agent(models.Model):
    """One agent that people talk to and give grants to.

    `enabled` says whether it may work, `last_seen` when it last said so (1970 means never); `status` is a
    relic of the schema that nothing reads.
    """

    id = models.TextField(primary_key=True)
    name = models.TextField()
    description = models.TextField(null=True, blank=True)
    default_engine_id = models.TextField()
    status = models.TextField(null=True, blank=True, default="offline", db_default="offline")
    metadata = JsonTextField(null=True, blank=True, default=dict, db_default=models.Value("{}"))
    required_capabilities = JsonTextField(
        null=True,
        blank=True,
        default=default_capabilities,
        db_default=models.Value('["Reasoning", "Memory"]'),
    )
    enabled = models.BooleanField(default=True, db_default=True)
    last_seen = MsField(default=0, db_default=0)
    power_password_hash = models.TextField(null=True, blank=True)

    class Meta:
        db_table = "agents"

    def __str__(self) -> str:
        return self.name


class AgentPlugin(models.Model):
    """An agent's use of a plugin; the position is that of its card on the agent's board."""

    pk = models.CompositePrimaryKey("agent_id", "plugin_id")
    agent = models.ForeignKey(Agent, models.DO_NOTHING, db_index=False, related_name="agent_plugins")
    plugin_id = models.TextField()
    pos_x = models.BigIntegerField(default=0, db_default=0)
    pos_y = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "agent_plugins"

    def __str__(self) -> str:
        return f"{self.agent_id} uses {self.plugin_id}"


class DeletedAgent(models.Model):
    """The id of an agent that was deleted: no other gets it while anything names it (actions.agents.deleted_agents)."""

    agent_id = models.TextField(primary_key=True)
    deleted_at = IsoTextField()

    class Meta:
        db_table = "deleted_agents"

    def __str__(self) -> str:
        return str(self.agent_id)


class AgentName(models.Model):
    """What a person said of a name in sessions, runs and requests: whose it is. `agent_id` is None for nobody's.

    Names without a row are linked by themselves (`models.agent_names`). No name decides anything: grants, rules,
    budgets and brakes go by the id that a call came with.
    """

    name = models.TextField(primary_key=True)
    agent = models.ForeignKey(
        Agent,
        models.DO_NOTHING,  # the database cascades
        null=True,
        db_index=False,
        related_name="other_names",
    )
    linked_by = models.TextField()
    linked_at = IsoTextField()

    class Meta:
        db_table = "agent_names"

    def __str__(self) -> str:
        return str(self.name)
