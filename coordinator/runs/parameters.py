"""What a run is ordered with: a prompt, or the arguments of a procedural agent, held to the agent's JSON Schema."""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec

from coordinator.errors import BadRequest

# What an agent takes that does not say: as the newest coordinator has it.
PROMPT_ALONE: dict[str, Any] = {
    "type": "object",
    "required": ["prompt"],
    "properties": {"prompt": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}
# What a runner takes that drives agents (runs.offers).
DRIVEN: dict[str, Any] = {
    "type": "object",
    "required": ["prompt"],
    "properties": {
        "prompt": {"type": "string"},
        "agent": {"type": "string", "minLength": 1, "maxLength": 200},
        "mode": {"type": "string", "maxLength": 500},
        "model": {"type": "string", "maxLength": 500},
        "config": {"type": "object", "maxProperties": 50},
        "worktree": {"type": "boolean"},
        "fork_of": {"type": "string", "maxLength": 200},
        "images": {
            "type": "array",
            "maxItems": 20,
            "items": {
                "type": "object",
                "required": ["mimeType", "data"],
                "properties": {"mimeType": {"type": "string", "maxLength": 100}, "data": {"type": "string"}},
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
NO_AGENT = "(no agent)"
LARGEST_SCHEMA = 64 * 1024  # bytes of JSON; a runner's word for what its agent takes
MOST_FAULTS = 20
# A runner's pattern may take for ever on the text that a client gives: these are left to the agent itself.
NOT_CHECKED = ("pattern", "patternProperties", "format")


def require_fit(parameters: dict[str, Any], schema: Any, agent: str | None) -> None:
    """Raise BadRequest, with the faults and the schema, where the parameters do not meet it."""
    schema = PROMPT_ALONE if schema is None else schema
    faults = _faults(parameters, schema, agent or NO_AGENT)
    if faults:
        raise BadRequest(
            {
                "error": "parameter_validation_failed",
                "message": "Parameters do not match agent's parameters_schema",
                "agent_name": agent or NO_AGENT,
                "validation_errors": faults,
                "parameters_schema": schema,
            }
        )


def _faults(parameters: dict[str, Any], schema: Any, agent: str) -> list[dict[str, str]]:
    if len(msgspec.json.encode(schema)) > LARGEST_SCHEMA:
        raise BadRequest(f"The parameters_schema of {agent} is larger than {LARGEST_SCHEMA // 1024} KiB.")
    # Loaded by the first who needs it: a restart is short without.
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    checks = {
        name: check for name, check in Draft202012Validator.VALIDATORS.items() if name not in NOT_CHECKED
    }
    validator = validators.create(Draft202012Validator.META_SCHEMA, checks)
    try:
        # An empty registry: a schema's $ref is looked up in the schema alone, never fetched.
        found = list(islice(validator(schema, registry=Registry()).iter_errors(parameters), MOST_FAULTS))
    except Exception as problem:
        said = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        raise BadRequest(f"The parameters_schema of {agent} cannot be applied: {said}") from None
    return [
        {
            "path": one.json_path,
            "message": one.message,
            "schema_path": ".".join(str(part) for part in one.absolute_schema_path),
        }
        for one in found
    ]
