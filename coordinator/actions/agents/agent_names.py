"""The links from names in sessions, runs and requests to agents, set once by an administrator.

A link changes what people see together. It does not change what is allowed (`models.agent_names`).
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from coordinator.actions.agents.agents import lock_agent
from coordinator.actions.audit import audit
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import Actor
from coordinator.models import Agent, AgentName
from coordinator.models.agent_names import find_linked_agent, list_all_agent_names


def link_agent_name(name: str, agent_id: str, *, actor: Actor, now: datetime) -> None:
    """Link a name to an agent. Raises NotFound for no such agent or a name that nothing has, and Conflict.

    A name that is the id of an agent, or that another agent has, is refused.
    """
    with transaction.atomic():
        lock_agent(agent_id)
        if Agent.objects.filter(pk=name).exists():
            raise Conflict(f"{name} is the id of an agent, and can be no other agent's name.")
        linked = find_linked_agent(name)
        if linked is not None and linked.agent_id != agent_id:
            raise Conflict(f"{name} is linked to {linked.agent_id}. Unlink it there first.")
        if name not in list_all_agent_names():
            raise NotFound(f"No session and no blueprint has the name {name!r}.")
        if linked is not None:
            return
        AgentName.objects.update_or_create(
            name=name, defaults={"agent_id": agent_id, "linked_by": str(actor), "linked_at": now}
        )
        audit.record_audit_entry(
            "AGENT_NAME_LINKED",
            actor=actor,
            target=agent_id,
            result="success",
            metadata={"name": name},
            now=now,
        )


def unlink_agent_name(name: str, agent_id: str, *, actor: Actor, now: datetime) -> None:
    """Unlink a name from this agent, also where nobody linked it. Raises NotFound, or Conflict for its id."""
    with transaction.atomic():
        lock_agent(agent_id)
        if name == agent_id:
            raise Conflict(f"{name} is the agent's id, and stays its name.")
        linked = find_linked_agent(name)
        if linked is None or linked.agent_id != agent_id:
            raise NotFound(f"{name!r} is not linked to {agent_id}. Reload the page.")
        AgentName.objects.update_or_create(
            name=name, defaults={"agent_id": None, "linked_by": str(actor), "linked_at": now}
        )
        audit.record_audit_entry(
            "AGENT_NAME_UNLINKED",
            actor=actor,
            target=agent_id,
            result="success",
            metadata={"name": name},
            now=now,
        )
