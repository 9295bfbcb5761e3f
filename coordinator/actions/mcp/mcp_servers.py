"""Registration, editing and deletion of MCP servers, including their grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from coordinator.actions.audit import audit
from coordinator.actions.mcp import mcp_upstreams
from coordinator.actions.policy import grants
from coordinator.actions.upkeep import changed_columns
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, require_actor_not_api_key
from coordinator.lib import row_versions
from coordinator.mcp.servers import names
from coordinator.models import (
    AcceptedOnlyServer,
    CachedResult,
    CacheGeneration,
    Grant,
    McpCallLimit,
    McpCallRate,
    McpCircuitBreaker,
    McpHostLearning,
    McpProcess,
    McpResultHost,
    McpResultMark,
    McpServer,
    McpTool,
    McpToolRevision,
    McpUpstream,
    StoredResult,
)
from coordinator.models.mcp import DefaultPolicy
from coordinator.secrets import mask_command_arguments

# What goes with a server; credentials and grants are deleted otherwise.
SERVER_PARTS = (
    McpTool,
    McpToolRevision,
    McpUpstream,
    McpProcess,
    McpCallLimit,
    McpCallRate,
    McpCircuitBreaker,
    StoredResult,
    CachedResult,
    CacheGeneration,
    McpResultHost,
    McpHostLearning,
    McpResultMark,
)
EDITABLE = ("command", "args", "script_content", "description", "is_active", "default_policy")


def compute_server_version(row: McpServer) -> str:
    """Return the version that an editor of this server has seen."""
    return row_versions.hash_row_fields_as_version(row, EDITABLE)


def create_mcp_server(
    name: str, *, command: str, actor: Actor, now: datetime | None = None, **other_columns: Any
) -> McpServer:
    """Make a server known; `other_columns` are further columns of EDITABLE. Raises UnprocessableRequest, Conflict."""
    changed_columns.require_valid_id(name, "A server")
    names.refuse_reserved_gateway_name(name)
    moment = now or timezone.now()
    changes = {"command": command, **other_columns}
    validate_server_columns(changes)
    row = McpServer(name=name, created_at=moment)
    changed_columns.assign_columns_and_diff(row, changes, EDITABLE)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            audit.record_audit_entry(
                "MCP_SERVER_CREATED",
                actor=actor,
                target=name,
                result="success",
                metadata={"after": mask_server_columns(changed_columns.read_column_values(row, EDITABLE))},
                now=moment,
            )
    except IntegrityError:
        raise Conflict(f"A server {name!r} already exists.") from None
    return row


def update_mcp_server(
    name: str,
    changes: Mapping[str, Any],
    *,
    actor: Actor,
    seen_version: str | None = None,
    now: datetime | None = None,
) -> McpServer:
    """Change columns of EDITABLE.

    Raises NotFound, UnprocessableRequest, Conflict for a version that is not `seen` any more.
    """
    validate_server_columns(changes)
    with transaction.atomic():
        row = lock_mcp_server(name, seen_version)
        with mcp_upstreams.renew_command_acceptance_during_block(McpServer.objects.get(pk=name), actor):
            difference = changed_columns.assign_columns_and_diff(row, changes, EDITABLE)
            if difference is None:
                return row
            row.save(update_fields=list(difference["after"]))
        metadata = {side: mask_server_columns(values) for side, values in difference.items()}
        audit.record_audit_entry(
            "MCP_SERVER_UPDATED", actor=actor, target=name, result="success", metadata=metadata, now=now
        )
    return row


def validate_server_columns(changes: Mapping[str, Any]) -> None:
    if "command" in changes and not str(changes["command"]).strip():
        raise UnprocessableRequest("A server needs a command that starts it.")
    args = changes.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise UnprocessableRequest('The arguments must be a JSON list of strings, such as ["-m", "server"].')
    policy = changes.get("default_policy", DefaultPolicy.OPT_IN)
    if policy not in DefaultPolicy.values:
        raise UnprocessableRequest(f"The default policy must be one of: {', '.join(DefaultPolicy.values)}.")


def lock_mcp_server(name: str, seen_version: str | None = None) -> McpServer:
    row = McpServer.objects.select_for_update().filter(pk=name).first()
    if row is None:
        raise NotFound(f"There is no server {name!r}.")
    row_versions.require_current_version(compute_server_version(row), seen_version, f"The server {name}")
    return row


def mask_server_columns(values: dict[str, Any]) -> dict[str, Any]:
    """Return column values as the audit log may hold them: secrets among the arguments are masked."""
    args = values.get("args")
    if isinstance(args, list) and all(isinstance(arg, str) for arg in args):
        return {**values, "args": mask_command_arguments(args)}
    return values


def set_accepted_tools_only(name: str, is_restricted: bool, *, actor: Actor, now: datetime) -> None:
    """Serve a tool of which the definition changed once a person accepted it only, or as it comes.

    Raises NotFound, Forbidden for an API key.
    """
    require_actor_not_api_key(actor, "An API key cannot change policy. A person must sign in to do it.")
    with transaction.atomic():
        row, rows = lock_mcp_server(name), AcceptedOnlyServer.objects.filter(pk=name)
        if rows.exists() == is_restricted:
            return
        if is_restricted:
            AcceptedOnlyServer.objects.create(server=row)
        else:
            rows.delete()
        metadata = {"before": not is_restricted, "after": is_restricted}
        audit.record_audit_entry(
            "MCP_SERVER_ACCEPTED_ONLY", actor=actor, target=name, result="success", metadata=metadata, now=now
        )


def count_server_dependents_by_kind(names: Iterable[str]) -> dict[str, int]:
    """Return how many rows are deleted with these servers, so that a person can be warned first."""
    ids = list(names)
    return {
        "grants": Grant.objects.filter(server_id__in=ids).count(),
        "tools": McpTool.objects.filter(server_id__in=ids).count(),
    }


def delete_server_with_grants(
    name: str,
    *,
    actor: Actor,
    reason: str | None = None,
    seen_version: str | None = None,
    now: datetime | None = None,
) -> McpServer:
    """Delete a server, its tools and the grants to it: a later server of that name must not inherit grants.

    Raises NotFound, Conflict for a version that is not `seen` any more.
    """
    moment = now or timezone.now()
    with transaction.atomic():
        row = lock_mcp_server(name, seen_version)
        dependent_counts = count_server_dependents_by_kind([name])
        grants.delete_grants_of_agent_or_server(
            actor=actor, now=moment, reason=f"The server {name} was deleted.", server_id=name
        )
        for model in SERVER_PARTS:
            model._default_manager.filter(server_id=name).delete()
        before = mask_server_columns(changed_columns.read_column_values(row, EDITABLE))
        McpServer.objects.filter(pk=name).delete()
        audit.record_audit_entry(
            "MCP_SERVER_DELETED",
            actor=actor,
            target=name,
            result="success",
            reason=reason,
            metadata={"before": before, "taken_along": dependent_counts},
            now=moment,
        )
    return row
