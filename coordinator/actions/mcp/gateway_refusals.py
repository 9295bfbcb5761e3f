"""Audit entries of agents that were refused at a server's endpoint."""

from __future__ import annotations

from datetime import datetime

from coordinator.actions.audit import audit
from coordinator.actions.policy import denials
from coordinator.identity.actors import Actor


def record_agent_refusal_at_server(
    actor: Actor, agent_id: str, server_id: str, text: str, *, now: datetime
) -> None:
    """Write that an agent was refused before any tool of the server was in question."""
    audit.record_audit_entry(
        denials.EVENT,
        actor=actor,
        target=f"{agent_id} {server_id[:100]}",
        permission="deny",
        result="denied",
        reason=text,
        metadata={"source": "gateway"},
        now=now,
    )
