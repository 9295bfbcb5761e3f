"""Capabilities: made, edited, and deleted while no blueprint refers to them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from coordinator.actions import audit
from coordinator.actions.blueprints import check_name, given, not_none
from coordinator.actors import Actor
from coordinator.errors import Conflict, NotFound
from coordinator.models import Blueprint, Capability

REMOVABLE = ("text", "mcp_servers")


def find(name: str) -> Capability:
    """Return the capability of that name. Raises NotFound."""
    capability = Capability.objects.filter(pk=name).first()
    if capability is None:
        raise NotFound(f"Capability not found: {name}")
    return capability


def create(name: str, fields: Mapping[str, Any], *, by: Actor, now: datetime) -> Capability:
    """Add a capability. Raises BadRequest for a bad name, Conflict for one that exists."""
    check_name(name, "Capability")
    try:
        with transaction.atomic():
            values = given(fields, REMOVABLE)
            capability = Capability.objects.create(name=name, created_at=now, modified_at=now, **values)
            audit.record("CAPABILITY_CREATED", actor=by, target=name, result="success", now=now)
    except IntegrityError:
        raise Conflict(f"Capability already exists: {name}") from None
    return capability


def edit(name: str, fields: Mapping[str, Any], *, by: Actor, now: datetime) -> Capability:
    """Change the given fields: None leaves a field as it is, an empty value takes it away. Raises NotFound."""
    with transaction.atomic():
        capability = _locked(name)
        changes = {key: fields[key] or None if key in REMOVABLE else fields[key] for key in not_none(fields)}
        before = {key: getattr(capability, key) for key in changes}
        for key, value in changes.items():
            setattr(capability, key, value)
        capability.modified_at = now
        capability.save(update_fields=[*changes, "modified_at"])
        audit.record(
            "CAPABILITY_EDITED",
            actor=by,
            target=name,
            result="success",
            metadata={"before": before, "after": changes},
            now=now,
        )
    return capability


def delete(name: str, *, by: Actor, now: datetime) -> None:
    """Remove a capability. Raises NotFound, or Conflict while blueprints refer to it."""
    with transaction.atomic():
        capability = _locked(name)
        users = [one.name for one in Blueprint.objects.order_by("name") if name in (one.capabilities or ())]
        if users:
            raise Conflict(f"Capability is referenced by agents: {', '.join(users)}")
        capability.delete()
        audit.record("CAPABILITY_DELETED", actor=by, target=name, result="success", now=now)


def _locked(name: str) -> Capability:
    find(name)
    return Capability.objects.select_for_update().get(pk=name)
