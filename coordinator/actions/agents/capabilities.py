"""Creation and editing of capabilities, and their deletion while no blueprint refers to them."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from coordinator.actions.agents.named_rows import NamedRows
from coordinator.actions.audit import audit
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor
from coordinator.models import Blueprint, Capability

_CAPABILITIES = NamedRows(
    Capability, noun="Capability", event="CAPABILITY", removable=("text", "mcp_servers", "script")
)
find = _CAPABILITIES.require_named_row
create = _CAPABILITIES.create_named_row
edit = _CAPABILITIES.edit_named_row


def remove_capability(name: str, *, actor: Actor, now: datetime) -> None:
    """Remove a capability. Raises NotFound, or Conflict while blueprints refer to it."""
    with transaction.atomic():
        capability = _CAPABILITIES.lock_named_row(name)
        users = [
            blueprint.name
            for blueprint in Blueprint.objects.order_by("name")
            if name in (blueprint.capabilities or ())
        ]
        if users:
            raise Conflict(f"Capability is referenced by agents: {', '.join(users)}")
        capability.delete()
        audit.record_audit_entry("CAPABILITY_DELETED", actor=actor, target=name, result="success", now=now)
