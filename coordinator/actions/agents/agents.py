"""Creation, editing and deletion of agents, including their plugins and dependent rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from coordinator.actions.agents import deleted_agents
from coordinator.actions.audit import audit
from coordinator.actions.chat import chat
from coordinator.actions.people import keys, session_keys
from coordinator.actions.policy import grants
from coordinator.actions.upkeep import changed_columns
from coordinator.errors import Conflict, Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.lib import row_versions
from coordinator.models import (
    Agent,
    AgentPlugin,
    ApiKey,
    ChatAttachment,
    ChatMessage,
    ConnectCode,
    DeletedAgent,
    Grant,
    McpAgentPerson,
    ReadMark,
    SessionKey,
)

DEFAULT_AGENT = "agent.cloto_default"
DEFAULT_REFUSED = f"{DEFAULT_AGENT} is the default agent and cannot be deleted. Switch it off instead."
EDITABLE = (
    "name",
    "description",
    "default_engine_id",
    "metadata",
    "required_capabilities",
    "enabled",
)


def compute_agent_version(row: Agent) -> str:
    """Return the version that an editor of this agent has seen; heartbeats do not change it."""
    return row_versions.hash_row_fields_as_version(row, EDITABLE)


def create_agent(
    agent_id: str,
    *,
    name: str,
    default_engine_id: str,
    actor: Actor,
    now: datetime | None = None,
    **other_columns: Any,
) -> Agent:
    """Make an agent; `other_columns` are further columns of EDITABLE.

    Raises UnprocessableRequest, or Conflict for a taken id.

    An id that a deleted agent had is taken while anything names it.
    """
    changed_columns.require_valid_id(agent_id, "An agent's id")
    row = Agent(id=agent_id)
    changes = {"name": name, "default_engine_id": default_engine_id, **other_columns}
    validate_agent_columns(changes)
    changed_columns.assign_columns_and_diff(row, changes, EDITABLE)
    try:
        with transaction.atomic():
            deleted_agents.reclaim_deleted_agent_id(agent_id)
            row.save(force_insert=True)
            audit.record_audit_entry(
                "AGENT_CREATED",
                actor=actor,
                target=agent_id,
                result="success",
                metadata={"after": changed_columns.read_column_values(row, EDITABLE)},
                now=now,
            )
    except IntegrityError:
        raise Conflict(f"An agent {agent_id!r} already exists.") from None
    return row


def update_agent(
    agent_id: str,
    changes: Mapping[str, Any],
    *,
    actor: Actor,
    seen_version: str | None = None,
    now: datetime | None = None,
) -> Agent:
    """Change columns of EDITABLE.

    Raises NotFound, UnprocessableRequest, Conflict for a version that is not `seen` any more.

    Raises Forbidden for a switch of `enabled` that needs a password.
    """
    validate_agent_columns(changes)
    with transaction.atomic():
        row = lock_agent(agent_id, seen_version)
        difference = changed_columns.assign_columns_and_diff(row, changes, EDITABLE)
        if difference is None:
            return row
        if "enabled" in difference["after"] and row.power_password_hash:
            raise Forbidden(f"A password protects the power switch of {agent_id}.")
        row.save(update_fields=list(difference["after"]))
        audit.record_audit_entry(
            "AGENT_UPDATED", actor=actor, target=agent_id, result="success", metadata=difference, now=now
        )
    return row


def validate_agent_columns(changes: Mapping[str, Any]) -> None:
    for name in ("name", "default_engine_id"):
        if name in changes and not str(changes[name]).strip():
            raise UnprocessableRequest(f"An agent needs a {name.replace('_', ' ').removesuffix(' id')}.")


def lock_agent(agent_id: str, seen_version: str | None = None) -> Agent:
    row = Agent.objects.select_for_update().filter(pk=agent_id).first()
    if row is None:
        raise NotFound(f"There is no agent {agent_id!r}.")
    row_versions.require_current_version(compute_agent_version(row), seen_version, f"The agent {agent_id}")
    return row


def plugin_assignment_version(row: AgentPlugin) -> str:
    return row_versions.hash_column_values_as_version([row.pos_x, row.pos_y])


def assign_plugin(
    agent_id: str,
    plugin_id: str,
    *,
    actor: Actor,
    pos_x: int = 0,
    pos_y: int = 0,
    now: datetime | None = None,
) -> AgentPlugin:
    """Give an agent a plugin. Raises NotFound for no such agent, Conflict where it has the plugin already."""
    changed_columns.require_valid_id(plugin_id, "A plugin")
    try:
        with transaction.atomic():
            agent = lock_agent(agent_id)
            row = AgentPlugin(agent=agent, plugin_id=plugin_id, pos_x=pos_x, pos_y=pos_y)
            row.save(force_insert=True)
            metadata = {"plugin_id": plugin_id, "after": {"pos_x": pos_x, "pos_y": pos_y}}
            audit_plugin_assignment_change("AGENT_PLUGIN_ASSIGNED", agent_id, metadata, actor, now)
    except IntegrityError:
        raise Conflict(f"{agent_id} already uses {plugin_id}.") from None
    return row


def move_plugin_on_board(
    agent_id: str,
    plugin_id: str,
    *,
    pos_x: int,
    pos_y: int,
    actor: Actor,
    seen_version: str | None = None,
    now: datetime | None = None,
) -> AgentPlugin:
    """Put a plugin's card elsewhere on the agent's board. Raises NotFound, Conflict."""
    with transaction.atomic():
        row = lock_plugin_assignment(agent_id, plugin_id, seen_version)
        difference = changed_columns.assign_columns_and_diff(
            row, {"pos_x": pos_x, "pos_y": pos_y}, ("pos_x", "pos_y")
        )
        if difference is not None:
            row.save(update_fields=list(difference["after"]))
            metadata = {"plugin_id": plugin_id, **difference}
            audit_plugin_assignment_change("AGENT_PLUGIN_MOVED", agent_id, metadata, actor, now)
    return row


def unassign_plugin(
    agent_id: str,
    plugin_id: str,
    *,
    actor: Actor,
    seen_version: str | None = None,
    now: datetime | None = None,
) -> None:
    """Take a plugin from an agent. Raises NotFound, Conflict."""
    with transaction.atomic():
        row = lock_plugin_assignment(agent_id, plugin_id, seen_version)
        before = {"pos_x": row.pos_x, "pos_y": row.pos_y}
        row.delete()
        metadata = {"plugin_id": plugin_id, "before": before}
        audit_plugin_assignment_change("AGENT_PLUGIN_WITHDRAWN", agent_id, metadata, actor, now)


def lock_plugin_assignment(agent_id: str, plugin_id: str, seen_version: str | None) -> AgentPlugin:
    row = AgentPlugin.objects.select_for_update().filter(pk=(agent_id, plugin_id)).first()
    if row is None:
        raise NotFound(f"{agent_id} no longer uses {plugin_id}. Reload the page.")
    row_versions.require_current_version(
        plugin_assignment_version(row), seen_version, f"{plugin_id} of {agent_id}"
    )
    return row


def audit_plugin_assignment_change(
    event: str, agent_id: str, metadata: dict[str, Any], actor: Actor, now: datetime | None
) -> None:
    audit.record_audit_entry(
        event, actor=actor, target=agent_id, result="success", metadata=metadata, now=now
    )


def count_agent_dependents_by_kind(agent_ids: Iterable[str]) -> dict[str, int]:
    """Return how many rows are deleted with these agents, so that a person can be warned first."""
    ids = list(agent_ids)
    return {
        "chat messages": ChatMessage.objects.filter(agent__in=ids).count(),
        "chat attachments": ChatAttachment.objects.filter(message__agent__in=ids).count(),
        "grants": Grant.objects.filter(agent_id__in=ids).count(),
        "assigned plugins": AgentPlugin.objects.filter(agent__in=ids).count(),
        "API keys to be revoked": active_agent_api_keys(ids).count(),
    }


def delete_agent_with_data(
    agent_id: str, *, actor: Actor, reason: str | None = None, now: datetime | None = None
) -> Agent:
    """Delete an agent with its messages, attachments, grants and assignments, and revoke its API keys.

    The id comes from the name, so a later agent might get the same one, and with it whatever stays under it: it is
    given to no other before nothing of that is left (deleted_agents). Raises NotFound, or Conflict for the default
    agent, which other programs count on.
    """
    moment = now or timezone.now()
    if agent_id == DEFAULT_AGENT:
        raise Conflict(DEFAULT_REFUSED)
    with transaction.atomic():
        row = lock_agent(agent_id)
        deleted_counts = count_agent_dependents_by_kind([agent_id])
        for key in active_agent_api_keys([agent_id]):
            keys.invalidate_api_key(
                key.pk, actor=actor, now=moment, reason=f"The agent {agent_id} was deleted."
            )
        keys.unbind_agent_or_revoke_keys(agent_id, actor=actor, now=moment)
        chat.purge_messages_and_count_attachments(ChatMessage.objects.filter(agent=agent_id))
        McpAgentPerson.objects.filter(pk=agent_id).delete()
        ReadMark.objects.filter(agent_id=agent_id).delete()
        grants.delete_grants_of_agent_or_server(
            actor=actor, now=moment, reason=f"The agent {agent_id} was deleted.", agent_id=agent_id
        )
        AgentPlugin.objects.filter(agent=agent_id).delete()
        before = changed_columns.read_column_values(row, EDITABLE)
        for session_id in SessionKey.objects.filter(agent_id=agent_id).values_list("session_id", flat=True):
            session_keys.end_session_key(
                session_id, f"The agent {agent_id} was deleted.", moment, actor=actor
            )
        ConnectCode.objects.filter(agent_id=agent_id, used_at__isnull=True).delete()
        Agent.objects.filter(pk=agent_id).delete()
        DeletedAgent.objects.update_or_create(pk=agent_id, defaults={"deleted_at": moment})
        audit.record_audit_entry(
            "AGENT_DELETED",
            actor=actor,
            target=agent_id,
            result="success",
            reason=reason,
            metadata={"before": before, "taken_along": deleted_counts},
            now=moment,
        )
    return row


def active_agent_api_keys(agent_ids: Iterable[str]) -> Any:
    return ApiKey.objects.filter(agent_id__in=list(agent_ids), revoked_at__isnull=True)
