"""What a run is ordered with: a prompt, or the arguments of a procedural agent, held to the agent's JSON Schema."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from coordinator.errors import BadRequest, ServiceBusy
from coordinator.runs import schemas
from coordinator.sandbox import JobFailed, LimitsExceeded, Overloaded, ProcessLimits, Sandbox

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
BUSY = "The parameters cannot be validated now: other orders are. Nothing was ordered; try again."
VALIDATION_WAIT_SECONDS = 0.2  # for the place of the order before: each waits in a thread that answers pages

_sandbox = Sandbox(
    "coordinator.runs.schema_jobs",
    ProcessLimits(cpu_seconds=0.25, wall_seconds=1.0, memory_bytes=512 * 1024 * 1024, fork_each=True),
)
_sandbox_place = threading.Lock()  # one thread at most waits for the child, however many orders come


def require_valid_parameters(parameters: dict[str, Any], schema: Any, agent: str | None) -> None:
    """Raise BadRequest, with the faults and the schema, where the parameters do not meet it."""
    schema = PROMPT_ALONE if schema is None else schema
    errors = find_run_parameter_errors(parameters, schema, agent or NO_AGENT)
    if errors:
        raise BadRequest(
            {
                "error": "parameter_validation_failed",
                "message": "Parameters do not match agent's parameters_schema",
                "agent_name": agent or NO_AGENT,
                "validation_errors": errors,
                "parameters_schema": schema,
            }
        )


def find_run_parameter_errors(parameters: dict[str, Any], schema: Any, agent: str) -> list[dict[str, str]]:
    """Return what does not meet the schema. Raises BadRequest for a schema that cannot be applied, and ServiceBusy."""
    size = len(msgspec.json.encode(parameters))
    if schema is PROMPT_ALONE or schema is DRIVEN:
        return schemas.find_schema_errors(parameters, schema)
    if len(msgspec.json.encode(schema)) > LARGEST_SCHEMA:
        raise BadRequest(f"The parameters_schema of {agent} is larger than {LARGEST_SCHEMA // 1024} KiB.")
    try:
        if schemas.is_schema_validation_bounded(parameters, schema, size):
            return schemas.find_schema_errors(parameters, schema)
        return find_parameter_errors_in_sandbox(parameters, schema)
    except schemas.InapplicableSchema as problem:
        raise BadRequest(f"The parameters_schema of {agent} cannot be applied: {problem}") from None
    except JobFailed:
        raise BadRequest(f"The parameters_schema of {agent} cannot be applied to these parameters.") from None
    except LimitsExceeded:
        raise BadRequest(
            f"The parameters_schema of {agent} takes too long to apply to these parameters. Nothing was ordered."
        ) from None
    except Overloaded:
        raise ServiceBusy(BUSY, retry_after=1) from None


def find_parameter_errors_in_sandbox(parameters: dict[str, Any], schema: Any) -> list[dict[str, str]]:
    """Return what does not meet the schema. Raises Inapplicable, ServiceBusy and SandboxError."""
    if not _sandbox_place.acquire(timeout=VALIDATION_WAIT_SECONDS):
        raise ServiceBusy(BUSY, retry_after=1)
    try:
        body = msgspec.json.encode({"parameters": parameters, "schema": schema})
        answer = _sandbox.run_sandbox_job("validate", body)
    finally:
        _sandbox_place.release()
    if "inapplicable" in answer.facts:
        raise schemas.InapplicableSchema(str(answer.facts["inapplicable"])[:200])
    return msgspec.json.decode(answer.body, type=list[dict[str, str]])
