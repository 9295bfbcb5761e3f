"""Agents' presence (not their blueprints): list, heartbeat, power switch."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Schema
from pydantic import Field

from coordinator.actions.policy import agent_power
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.api.shared_types import Text, error_responses, get_request_key_identity
from coordinator.chat.presence import agent_presence_status
from coordinator.chat.reading import require_chat_agent
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


def agent_as_json(row: Agent) -> dict[str, Any]:
    """Return an agent as machines read it."""
    last_seen = row.last_seen
    metadata = dict(row.metadata) if isinstance(row.metadata, dict) else {}
    metadata["has_power_password"] = "true" if row.power_password_hash else "false"
    return {
        "id": row.pk,
        "name": row.name,
        "description": row.description,
        "default_engine_id": row.default_engine_id,
        "status": agent_presence_status(row, timezone.now()),
        "enabled": bool(row.enabled),
        "last_seen": instants.instant_to_microseconds(last_seen) // 1000
        if not isinstance(last_seen, str)
        else 0,
        "metadata": metadata,
        "required_capabilities": row.required_capabilities,
    }


@router.get(
    "/agents",
    auth=build_scoped_key_auth("read", "operator", "agent"),
    response={200: list[AgentOut], **error_responses()},
    operation_id="list_agents",
    summary="List agents with their presence",
)
def list_agents(request: HttpRequest) -> list[dict[str, Any]]:
    """By name."""
    return [agent_as_json(row) for row in Agent.objects.exclude(pk=None).order_by("name", "pk")]


@router.post(
    "/agents/{path:agent_id}/heartbeat",
    auth=build_scoped_key_auth("agent", "operator"),
    response={200: AgentOut, **error_responses(404)},
    operation_id="agent_heartbeat",
    summary="Send an agent's heartbeat",
)
def receive_agent_heartbeat(request: HttpRequest, agent_id: Text) -> dict[str, Any]:
    """Send one every 30 to 60 seconds; after 90 seconds without one the agent is shown as degraded.

    Where the answer's `enabled` is false, people have switched the agent off: it should stop working.
    """
    identity = get_request_key_identity(request)
    if not identity.can_speak_for_agent(agent_id):
        raise Forbidden(f"This key is bound to {identity.bound_agents_label} and may not act for {agent_id}.")
    return agent_as_json(agent_power.record_agent_heartbeat(agent_id, timezone.now()))


@router.post(
    "/agents/{path:agent_id}/power",
    auth=build_scoped_key_auth("operator"),
    response={200: AgentOut, **error_responses(400, 404, 409)},
    operation_id="switch_agent",
    summary="Switch an agent on or off",
)
def switch_agent_power(request: HttpRequest, agent_id: Text, body: PowerSwitch) -> dict[str, Any]:
    """If a password guards the switch: 400 where it is missing, 403 where it is wrong, 429 after several wrong ones."""
    require_chat_agent(agent_id)
    row = agent_power.set_agent_enabled(
        agent_id,
        body.enabled,
        actor=get_request_key_identity(request).caller_actor,
        password=body.password,
        now=timezone.now(),
    )
    return agent_as_json(row)
