"""Creation, editing, switching and deletion of blueprints. Names are validated on every write."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from coordinator.actions.agents import deleted_agents
from coordinator.actions.agents.named_rows import NamedRows
from coordinator.actions.audit import audit
from coordinator.identity.actors import Actor
from coordinator.models import Blueprint

# Clients know blueprints as agents.
_BLUEPRINTS = NamedRows(
    Blueprint,
    noun="Agent",
    event="BLUEPRINT",
    removable=("system_prompt", "mcp_servers", "skills", "demands", "parameters_schema"),
)
find = _BLUEPRINTS.require_named_row
edit = _BLUEPRINTS.edit_named_row


def add_blueprint(name: str, fields: Mapping[str, Any], *, actor: Actor, now: datetime) -> Blueprint:
    """Add a blueprint. Raises as NamedRows.create, and Conflict for the id of a deleted agent: runs speak as it."""
    deleted_agents.require_no_deleted_agent_references(name)
    return _BLUEPRINTS.create_named_row(name, fields, actor=actor, now=now)


def change_blueprint_status(name: str, status: str, *, actor: Actor, now: datetime) -> Blueprint:
    """Make a blueprint `active` or `inactive`; inactive ones are listed and marked. Raises NotFound."""
    with transaction.atomic():
        blueprint = _BLUEPRINTS.lock_named_row(name)
        before, blueprint.status = blueprint.status, status
        blueprint.save(update_fields=["status"])
        audit.record_audit_entry(
            "BLUEPRINT_STATUS_SET",
            actor=actor,
            target=name,
            result="success",
            metadata={"before": before, "after": status},
            now=now,
        )
    return blueprint


def remove_blueprint(name: str, *, actor: Actor, now: datetime) -> None:
    """Remove a blueprint. Raises NotFound."""
    with transaction.atomic():
        _BLUEPRINTS.lock_named_row(name).delete()
        audit.record_audit_entry("BLUEPRINT_DELETED", actor=actor, target=name, result="success", now=now)
