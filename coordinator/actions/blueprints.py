"""Blueprints: made, edited, switched off and on, deleted. Names are checked whenever one is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from coordinator.actions import audit
from coordinator.actors import Actor
from coordinator.errors import BadRequest, Conflict, NotFound
from coordinator.models import Blueprint

MAX_NAME = 60
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]*", re.ASCII)
# An edit that gives these an empty value takes them away; the other lists stay, empty.
REMOVABLE = ("system_prompt", "mcp_servers", "skills", "demands")


def check_name(name: str, noun: str) -> None:
    """Raise BadRequest for a name that could not stand in a path or a file name."""
    if len(name) > MAX_NAME:
        raise BadRequest(f"{noun} name must be {MAX_NAME} characters or less")
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"{noun} name must start with letter/number and contain only alphanumeric characters, "
            "hyphens, and underscores"
        )


def find(name: str) -> Blueprint:
    """Return the blueprint of that name. Raises NotFound."""
    blueprint = Blueprint.objects.filter(pk=name).first()
    if blueprint is None:
        raise NotFound(f"Agent not found: {name}")
    return blueprint


def create(name: str, fields: Mapping[str, Any], *, by: Actor, now: datetime) -> Blueprint:
    """Add a blueprint. Raises BadRequest for a bad name, Conflict for one that exists."""
    check_name(name, "Agent")
    try:
        with transaction.atomic():
            values = given(fields, REMOVABLE)
            blueprint = Blueprint.objects.create(name=name, created_at=now, modified_at=now, **values)
            audit.record("BLUEPRINT_CREATED", actor=by, target=name, result="success", now=now)
    except IntegrityError:
        raise Conflict(f"Agent already exists: {name}") from None
    return blueprint


def edit(name: str, fields: Mapping[str, Any], *, by: Actor, now: datetime) -> Blueprint:
    """Change the given fields: None leaves a field as it is, an empty value takes it away. Raises NotFound."""
    with transaction.atomic():
        blueprint = _locked(name)
        changes = {key: fields[key] or None if key in REMOVABLE else fields[key] for key in not_none(fields)}
        before = {key: getattr(blueprint, key) for key in changes}
        for key, value in changes.items():
            setattr(blueprint, key, value)
        blueprint.modified_at = now
        blueprint.save(update_fields=[*changes, "modified_at"])
        audit.record(
            "BLUEPRINT_EDITED",
            actor=by,
            target=name,
            result="success",
            metadata={"before": before, "after": changes},
            now=now,
        )
    return blueprint


def set_status(name: str, status: str, *, by: Actor, now: datetime) -> Blueprint:
    """Make a blueprint `active` or `inactive`; inactive ones are listed and marked. Raises NotFound."""
    with transaction.atomic():
        blueprint = _locked(name)
        before, blueprint.status = blueprint.status, status
        blueprint.save(update_fields=["status"])
        audit.record(
            "BLUEPRINT_STATUS_SET",
            actor=by,
            target=name,
            result="success",
            metadata={"before": before, "after": status},
            now=now,
        )
    return blueprint


def delete(name: str, *, by: Actor, now: datetime) -> None:
    """Remove a blueprint. Raises NotFound."""
    with transaction.atomic():
        _locked(name).delete()
        audit.record("BLUEPRINT_DELETED", actor=by, target=name, result="success", now=now)


def _locked(name: str) -> Blueprint:
    find(name)
    return Blueprint.objects.select_for_update().get(pk=name)


def not_none(fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields that a caller gave."""
    return [name for name, value in fields.items() if value is not None]


def given(fields: Mapping[str, Any], removable: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields to store for a new row: those given, empty removable ones as absent."""
    kept = {name: fields[name] for name in not_none(fields)}
    return {name: value for name, value in kept.items() if value or name not in removable}
