"""Shared lookup, creation and editing of rows that clients name themselves: blueprints and capabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db import IntegrityError, transaction

from coordinator.actions.audit import audit
from coordinator.errors import BadRequest, Conflict, NotFound
from coordinator.identity.actors import Actor
from coordinator.models import Blueprint, Capability
from coordinator.runs import sealed_servers
from coordinator.secrets import mask_server_secrets

MAX_NAME = 60
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]*", re.ASCII)

Row = TypeVar("Row", Blueprint, Capability)


@dataclass(frozen=True)
class NamedRows(Generic[Row]):
    """One kind of named rows.

    `noun` is what clients read in refusals, `event` begins the audit's event types. An edit that gives one of the
    `removable` fields an empty value takes it away; other lists stay, empty. The values of variables and headers of
    `mcp_servers` are sealed before they are stored.
    """

    model: type[Row]
    noun: str
    event: str
    removable: tuple[str, ...]

    def require_named_row(self, name: str) -> Row:
        """Return the row of that name. Raises NotFound."""
        row = self.model._default_manager.filter(pk=name).first()
        if row is None:
            raise NotFound(f"{self.noun} not found: {name}")
        return row

    def lock_named_row(self, name: str) -> Row:
        """Return the row of that name, locked until the transaction ends. Raises NotFound."""
        self.require_named_row(name)
        return self.model._default_manager.select_for_update().get(pk=name)

    def create_named_row(self, name: str, fields: Mapping[str, Any], *, actor: Actor, now: datetime) -> Row:
        """Add a row. Raises BadRequest for a bad name, Invalid for a masked value, Conflict for one that exists."""
        self.validate_row_name_format(name)
        row_fields = self.encrypt_mcp_server_fields(drop_none_fields(fields), name)
        values = {key: value for key, value in row_fields.items() if value or key not in self.removable}
        try:
            with transaction.atomic():
                row = self.model._default_manager.create(name=name, created_at=now, modified_at=now, **values)
                audit.record_audit_entry(
                    f"{self.event}_CREATED", actor=actor, target=name, result="success", now=now
                )
        except IntegrityError:
            raise Conflict(f"{self.noun} already exists: {name}") from None
        return row

    def edit_named_row(self, name: str, fields: Mapping[str, Any], *, actor: Actor, now: datetime) -> Row:
        """Change the given fields: None leaves one as it is, an empty value takes it away.

        Raises NotFound, Invalid for a masked value that is not stored here.
        """
        row_fields = drop_none_fields(fields)
        with transaction.atomic():
            row = self.lock_named_row(name)
            changes: dict[str, Any] = {
                key: (value or None) if key in self.removable else value
                for key, value in self.encrypt_mcp_server_fields(row_fields, name, row.mcp_servers).items()
            }
            before = {key: getattr(row, key) for key in changes}
            for key, value in changes.items():
                setattr(row, key, value)
            row.modified_at = now
            row.save(update_fields=[*changes, "modified_at"])
            audit.record_audit_entry(
                f"{self.event}_EDITED",
                actor=actor,
                target=name,
                result="success",
                metadata={
                    "before": mask_server_secrets_for_audit(before),
                    "after": mask_server_secrets_for_audit(changes),
                },
                now=now,
            )
        return row

    def encrypt_mcp_server_fields(
        self, values: dict[str, Any], name: str, stored: Any = None
    ) -> dict[str, Any]:
        """Return fields as they are stored."""
        if "mcp_servers" not in values:
            return values
        owner = f"{self.noun.lower()} {name}"
        return {
            **values,
            "mcp_servers": sealed_servers.seal_values_keeping_masked_ones(
                values["mcp_servers"], owner, stored
            ),
        }

    def validate_row_name_format(self, name: str) -> None:
        """Raise BadRequest for a name that cannot be part of a path or a file name."""
        if len(name) > MAX_NAME:
            raise BadRequest(f"{self.noun} name must be {MAX_NAME} characters or less")
        if not _NAME.fullmatch(name):
            raise BadRequest(
                f"{self.noun} name must start with letter/number and contain only alphanumeric characters, "
                "hyphens, and underscores"
            )


def mask_server_secrets_for_audit(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as the audit log may hold them."""
    return {
        name: mask_server_secrets(value) if name == "mcp_servers" else value for name, value in fields.items()
    }


def drop_none_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
