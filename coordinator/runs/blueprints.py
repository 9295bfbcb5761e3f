"""Reading blueprints: as written, or resolved with their capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from coordinator.errors import UnprocessableRequest
from coordinator.identity.keys import KeyIdentity
from coordinator.identity.scopes import READ_BLUEPRINTS_WHOLE, TAKE_RUNS
from coordinator.models import Blueprint, Capability, Run, Runner
from coordinator.models.runners import AUTONOMOUS, PROCEDURAL
from coordinator.models.sessions import RunStatus
from coordinator.runs import sealed_servers
from coordinator.secrets import mask_server_secrets
from coordinator.secrets.masking import mask_secrets_in_value

PROMPT_SEPARATOR = "\n\n---\n\n"


def format_blueprint_instant(value: Any) -> str:
    """Return an instant as blueprints show it: UTC without a zone, as their readers have always got it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat()
    return str(value)


def blueprint_as_json(blueprint: Blueprint) -> dict[str, Any]:
    """Return a blueprint as written, without the fields it does not have."""
    fields = {
        "name": blueprint.name,
        "description": blueprint.description,
        "system_prompt": blueprint.system_prompt,
        "mcp_servers": blueprint.mcp_servers,
        "type": blueprint.type or AUTONOMOUS,
        "parameters_schema": blueprint.parameters_schema,
        "skills": blueprint.skills,
        "tags": blueprint.tags,
        "capabilities": blueprint.capabilities,
        "demands": blueprint.demands,
        "status": blueprint.status,
        "created_at": format_blueprint_instant(blueprint.created_at),
        "modified_at": format_blueprint_instant(blueprint.modified_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def unmasked_blueprint_as_json(blueprint: Blueprint, *, raw: bool = False) -> dict[str, Any]:
    """Return a blueprint with the values of its MCP servers' variables and headers, for the runner that takes a
    run.

    Resolved unless `raw`. Raises UnprocessableRequest as `blueprint_with_capabilities_as_json` does, and where a value
    cannot be opened.
    """
    shape = blueprint_as_json(blueprint) if raw else blueprint_with_capabilities_as_json(blueprint)
    if "mcp_servers" in shape:
        parts = [blueprint_own_server_source(blueprint)] if raw else blueprint_server_sources(blueprint)
        opened = [sealed_servers.unseal_server_values(servers, owner) or {} for owner, servers in parts]
        shape["mcp_servers"] = {name: server for servers in opened for name, server in servers.items()}
    return shape


def blueprint_with_capabilities_as_json(blueprint: Blueprint) -> dict[str, Any]:
    """Return a blueprint with its capabilities' texts and MCP servers joined in.

    Raises UnprocessableRequest where a capability is missing or two parts bring an MCP server of the same name.
    """
    shape = blueprint_as_json(blueprint)
    names = blueprint.capabilities if isinstance(blueprint.capabilities, list) else []
    if not names:
        return shape
    capabilities = require_capabilities_by_names(names)
    prompts = [blueprint.system_prompt, *(capability.text for capability in capabilities)]
    servers = merge_servers_rejecting_duplicates(blueprint_server_sources(blueprint))
    resolved = {
        **shape,
        "system_prompt": PROMPT_SEPARATOR.join(prompt for prompt in prompts if prompt) or None,
        "mcp_servers": servers or None,
    }
    # In the order of the fields, which a blueprint that gains one must keep.
    order = ["name", "description", "system_prompt", "mcp_servers", *shape]
    return {name: resolved[name] for name in dict.fromkeys(order) if resolved[name] is not None}


def mask_blueprint_for_key(key: KeyIdentity, shape: dict[str, Any]) -> dict[str, Any]:
    """Return a blueprint or capability as a key may read it: texts whole for those that run or edit it, else masked.

    Nobody is told the values of its MCP servers' variables and headers.
    """
    blueprint_fields: dict[str, Any] = (
        shape if key.scopes & READ_BLUEPRINTS_WHOLE else mask_secrets_in_value(shape)
    )
    return (
        {**blueprint_fields, "mcp_servers": mask_server_secrets(shape["mcp_servers"])}
        if "mcp_servers" in shape
        else blueprint_fields
    )


def is_key_runner_running_blueprint(key: KeyIdentity, name: str) -> bool:
    """Say whether a runner of this key has a run of the blueprint in hand, and so needs all of it."""
    if not key.scopes & TAKE_RUNS:
        return False
    own = Runner.objects.filter(registered_by=key.name, deregistered_at=None)
    in_hand = (RunStatus.CLAIMED, RunStatus.RUNNING)
    return Run.objects.filter(agent_name=name, status__in=in_hand, runner_id__in=own.values("pk")).exists()


def find_unmasked_blueprint_as_json(name: str | None) -> dict[str, Any] | None:
    """Return the whole blueprint of that name, resolved, or None where there is none or it cannot be resolved."""
    return find_unmasked_blueprint_and_error(name)[0]


def find_unmasked_blueprint_and_error(name: str | None) -> tuple[dict[str, Any] | None, str]:
    """Return the whole blueprint of that name, resolved, and "".

    A name that nobody knows gives None and "". A blueprint that cannot be resolved gives None and the reason.
    """
    blueprint = Blueprint.objects.filter(pk=name).first() if name else None
    if blueprint is None:
        brought = find_procedural_runner_agent(name)
        return (brought.runner_agent_as_json() if brought else None), ""
    try:
        return unmasked_blueprint_as_json(blueprint), ""
    except UnprocessableRequest as problem:
        return None, str(problem.detail)


@dataclass(frozen=True, slots=True)
class RunnerAgent:
    """A procedural agent that a runner brought when it registered: there as long as the runner is."""

    runner: Runner
    reported: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.reported["name"])

    @property
    def parameters_schema(self) -> dict[str, Any]:
        """What it takes; anything, where its runner does not say it in a way that can be read."""
        parameters_schema = self.reported.get("parameters_schema")
        return parameters_schema if isinstance(parameters_schema, dict) else {"type": "object"}

    def own_runner_demands(self) -> dict[str, Any]:
        """Only its own runner has it."""
        return {
            "hostname": self.runner.hostname,
            "project_dir": self.runner.project_dir,
            "executor_profile": self.runner.executor_profile,
            "executor_type": PROCEDURAL,
        }

    def runner_agent_as_json(self) -> dict[str, Any]:
        """Return it as clients know blueprints, with its command and its runner. It has no times of its own."""
        return {
            "name": self.name,
            "description": str(self.reported.get("description") or ""),
            "type": PROCEDURAL,
            "parameters_schema": self.parameters_schema,
            "tags": [],
            "capabilities": [],
            "status": "active",
            "created_at": "",
            "modified_at": "",
            "command": str(self.reported.get("command") or ""),
            "runner_id": self.runner.runner_id,
        }


def load_procedural_runner_agents() -> list[RunnerAgent]:
    """Return the procedural agents of all runners by name; of several of one name, the first runner's."""
    agents_by_name: dict[str, RunnerAgent] = {}
    for runner in Runner.objects.filter(deregistered_at__isnull=True).order_by("registered_at", "runner_id"):
        if runner.executor_type == PROCEDURAL:
            for procedural_agent in runner.procedural_agents:
                agents_by_name.setdefault(procedural_agent["name"], RunnerAgent(runner, procedural_agent))
    return sorted(agents_by_name.values(), key=lambda agent: agent.name)


def find_procedural_runner_agent(name: str | None) -> RunnerAgent | None:
    """Return the procedural agent of that name, or None."""
    return (
        next((agent for agent in load_procedural_runner_agents() if agent.name == name), None)
        if name
        else None
    )


def require_capabilities_by_names(names: list[str]) -> list[Capability]:
    capabilities = Capability.objects.in_bulk(names)
    for name in names:
        if name not in capabilities:
            raise UnprocessableRequest(f"Capability resolution failed: {name} not found")
    return [capabilities[name] for name in names]


def blueprint_server_sources(blueprint: Blueprint) -> list[tuple[str, Any]]:
    """Return what a blueprint's MCP servers come from, by name: its capabilities, then itself."""
    names = blueprint.capabilities if isinstance(blueprint.capabilities, list) else []
    parts = [
        (f"capability {capability.name}", capability.mcp_servers)
        for capability in require_capabilities_by_names(names)
    ]
    return [*parts, blueprint_own_server_source(blueprint)]


def blueprint_own_server_source(blueprint: Blueprint) -> tuple[str, Any]:
    return f"agent {blueprint.name}", blueprint.mcp_servers


def merge_servers_rejecting_duplicates(parts: list[tuple[str, Any]]) -> dict[str, Any]:
    """Capabilities' servers come first; a name may come from one part only."""
    merged: dict[str, Any] = {}
    brought_by: dict[str, str] = {}
    for part, servers in parts:
        for name, server in (servers or {}).items():
            if name in merged:
                raise UnprocessableRequest(
                    f"MCP server name conflict: '{name}' comes from {brought_by[name]} and {part}"
                )
            merged[name], brought_by[name] = server, part
    return merged


def capability_type(capability: Capability) -> str:
    """Return what it was made as, or what it has: `script`, `mcp` or `text`."""
    if capability.type:
        return capability.type
    if capability.script:
        return "script"
    return "mcp" if capability.mcp_servers and not capability.text else "text"


def capability_as_json(capability: Capability) -> dict[str, Any]:
    """Return a capability, without the fields it does not have."""
    fields = {
        "name": capability.name,
        "description": capability.description,
        "type": capability_type(capability),
        "text": capability.text,
        "script": capability.script,
        "mcp_servers": capability.mcp_servers,
        "created_at": format_blueprint_instant(capability.created_at),
        "modified_at": format_blueprint_instant(capability.modified_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def capability_summary_as_json(capability: Capability) -> dict[str, Any]:
    """Return a capability as lists show it."""
    servers = capability.mcp_servers or {}
    return {
        "name": capability.name,
        "description": capability.description,
        "type": capability_type(capability),
        "has_script": bool(capability.script),
        "script_name": capability.script or None,
        "has_text": bool(capability.text),
        "has_mcp": bool(servers),
        "mcp_server_names": list(servers),
        "created_at": format_blueprint_instant(capability.created_at),
        "modified_at": format_blueprint_instant(capability.modified_at),
    }
