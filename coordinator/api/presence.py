"""Agents' presence (not their blueprints): list, heartbeat, power switch."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Schema
from pydantic import Field

from coordinator.actions import agent_power
from coordinator.api.auth import requires
from coordinator.api.router import Router
from coordinator.api.shared_types import Text, caller, problems
from coordinator.chat.presence import status_of
from coordinator.chat.reading import agent_of
from coordinator.errors import Forbidden
from coordinator.lib import instants
from coordinator.models import Agent

router = Router(tags=["Agents (presence)"])


class AgentOut(Schema):
    """An agent. It shows whether a password guards its switch, never the hash."""

    id: str
    name: str
    description: str | None
    default_engine_id: str
    status: str = Field(description="online, degraded or offline")
    enabled: bool
    last_seen: int = Field(description="Milliseconds since 1970; 0 means never")
    metadata: Any
    required_capabilities: Any


class PowerSwitch(Schema):
    """Whether to switch on or off."""

    enabled: bool
    password: Text | None = None


def shape(row: Agent) -> dict[str, Any]:
    """Return an agent as machines read it."""
    seen = row.last_seen
    metadata = dict(row.metadata) if isinstance(row.metadata, dict) else {}
    metadata["has_power_password"] = "true" if row.power_password_hash else "false"
    return {
        "id": row.pk,
        "name": row.name,
        "description": row.description,
        "default_engine_id": row.default_engine_id,
        "status": status_of(row, timezone.now()),
        "enabled": bool(row.enabled),
        "last_seen": instants.to_us(seen) // 1000 if not isinstance(seen, str) else 0,
        "metadata": metadata,
        "required_capabilities": row.required_capabilities,
    }


@router.get(
    "/agents",
    auth=requires("read", "operator", "agent"),
    response={200: list[AgentOut], **problems()},
    operation_id="list_agents",
    summary="List agents with their presence",
)
def list_agents(request: HttpRequest) -> list[dict[str, Any]]:
    """By name."""
    return [shape(row) for row in Agent.objects.exclude(pk=None).order_by("name", "pk")]


@router.post(
    "/agents/{path:agent_id}/heartbeat",
    auth=requires("agent", "operator"),
    response={200: AgentOut, **problems(404)},
    operation_id="agent_heartbeat",
    summary="Send an agent's heartbeat",
)
def heartbeat(request: HttpRequest, agent_id: Text) -> dict[str, Any]:
    """Send one every 30 to 60 seconds; after 90 seconds without one the agent is shown as degraded.

    Where the answer's `enabled` is false, people have switched the agent off: it should stop working.
    """
    if not caller(request).can_speak_for(agent_id):
        raise Forbidden(f"This key is bound to {caller(request).bound_to} and may not act for {agent_id}.")
    return shape(agent_power.heartbeat(agent_id, timezone.now()))


@router.post(
    "/agents/{path:agent_id}/power",
    auth=requires("operator"),
    response={200: AgentOut, **problems(400, 404, 409)},
    operation_id="switch_agent",
    summary="Switch an agent on or off",
)
def power(request: HttpRequest, agent_id: Text, body: PowerSwitch) -> dict[str, Any]:
    """If a password guards the switch: 400 where it is missing, 403 where it is wrong, 429 after several wrong ones."""
    agent_of(agent_id)
    row = agent_power.switch(
        agent_id, body.enabled, by=caller(request).actor, password=body.password, now=timezone.now()
    )
    return shape(row)
