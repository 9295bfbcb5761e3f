"""Blueprints as they are read: as written, or resolved, with what their capabilities bring."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from coordinator.errors import Invalid
from coordinator.models import Blueprint, Capability

PROMPT_SEPARATOR = "\n\n---\n\n"


def plain_moment(value: Any) -> str:
    """Return an instant as blueprints show it: UTC without a zone, as their readers have always got it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat()
    return str(value)


def blueprint_shape(blueprint: Blueprint) -> dict[str, Any]:
    """Return a blueprint as written, without the fields it does not have."""
    fields = {
        "name": blueprint.name,
        "description": blueprint.description,
        "system_prompt": blueprint.system_prompt,
        "mcp_servers": blueprint.mcp_servers,
        "skills": blueprint.skills,
        "tags": blueprint.tags,
        "capabilities": blueprint.capabilities,
        "demands": blueprint.demands,
        "status": blueprint.status,
        "created_at": plain_moment(blueprint.created_at),
        "modified_at": plain_moment(blueprint.modified_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def resolved_shape(blueprint: Blueprint) -> dict[str, Any]:
    """Return a blueprint with its capabilities' texts and MCP servers joined in.

    Raises Invalid where a capability is missing or two parts bring an MCP server of the same name.
    """
    shape = blueprint_shape(blueprint)
    names = blueprint.capabilities if isinstance(blueprint.capabilities, list) else []
    if not names:
        return shape
    capabilities = _capabilities(names)
    prompts = [blueprint.system_prompt, *(capability.text for capability in capabilities)]
    servers = _merged_servers(blueprint, capabilities)
    resolved = {
        **shape,
        "system_prompt": PROMPT_SEPARATOR.join(prompt for prompt in prompts if prompt) or None,
        "mcp_servers": servers or None,
    }
    # In the order of the fields, which a blueprint that gains one must keep.
    order = ["name", "description", "system_prompt", "mcp_servers", *shape]
    return {name: resolved[name] for name in dict.fromkeys(order) if resolved[name] is not None}


def resolved_or_none(name: str | None) -> dict[str, Any] | None:
    """Return the resolved blueprint of that name, or None where there is none or it cannot be resolved."""
    blueprint = Blueprint.objects.filter(pk=name).first() if name else None
    try:
        return resolved_shape(blueprint) if blueprint else None
    except Invalid:
        return None


def _capabilities(names: list[str]) -> list[Capability]:
    found = Capability.objects.in_bulk(names)
    for name in names:
        if name not in found:
            raise Invalid(f"Capability resolution failed: {name} not found")
    return [found[name] for name in names]


def _merged_servers(blueprint: Blueprint, capabilities: list[Capability]) -> dict[str, Any]:
    """Capabilities' servers come first; a name may come from one part only."""
    merged: dict[str, Any] = {}
    brought_by: dict[str, str] = {}
    parts = [(f"capability {one.name}", one.mcp_servers) for one in capabilities]
    for part, servers in [*parts, (f"agent {blueprint.name}", blueprint.mcp_servers)]:
        for name, server in (servers or {}).items():
            if name in merged:
                raise Invalid(f"MCP server name conflict: '{name}' comes from {brought_by[name]} and {part}")
            merged[name], brought_by[name] = server, part
    return merged


def capability_shape(capability: Capability) -> dict[str, Any]:
    """Return a capability, without the fields it does not have."""
    fields = {
        "name": capability.name,
        "description": capability.description,
        "text": capability.text,
        "mcp_servers": capability.mcp_servers,
        "created_at": plain_moment(capability.created_at),
        "modified_at": plain_moment(capability.modified_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def capability_summary(capability: Capability) -> dict[str, Any]:
    """Return a capability as lists show it."""
    servers = capability.mcp_servers or {}
    return {
        "name": capability.name,
        "description": capability.description,
        "has_text": bool(capability.text),
        "has_mcp": bool(servers),
        "mcp_server_names": list(servers),
        "created_at": plain_moment(capability.created_at),
        "modified_at": plain_moment(capability.modified_at),
    }
