"""Blueprints over HTTP. The Agent Coordinator's clients call them agents."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Schema, Status
from pydantic import BaseModel, Field

from coordinator.actions.agents import blueprints as actions
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.api.runs import RunDemands
from coordinator.api.shared_types import Text, error_responses, get_request_key_identity
from coordinator.identity.scopes import READERS
from coordinator.models import Blueprint
from coordinator.models.runners import AUTONOMOUS, PROCEDURAL
from coordinator.runs.blueprints import (
    blueprint_as_json,
    blueprint_with_capabilities_as_json,
    find_procedural_runner_agent,
    is_key_runner_running_blueprint,
    load_procedural_runner_agents,
    mask_blueprint_for_key,
    unmasked_blueprint_as_json,
)

router = Router(tags=["Agents (blueprints)"])

EDITORS = build_scoped_key_auth("operator")


class StdioServer(BaseModel):
    """An MCP server that the runner starts."""

    type: Literal["stdio"]
    command: Text
    args: list[Text] | None = None
    env: dict[Text, Text] | None = None


class HttpServer(BaseModel):
    """An MCP server that is reached by HTTP."""

    type: Literal["http"]
    url: Text
    headers: dict[Text, Text] | None = None


class DisabledServer(BaseModel):
    """No server of this name. Under `signalbox` it switches Signalbox's own gateway off for the agent's sessions."""

    type: Literal["off"]


McpServers = dict[Text, Annotated[StdioServer | HttpServer | DisabledServer, Field(discriminator="type")]]


class AgentType(Enum):
    """Whether a model works on a prompt, or a script runs with arguments."""

    autonomous = AUTONOMOUS
    procedural = PROCEDURAL


class BlueprintEdit(BaseModel):
    """What to change; null leaves a field as it is, an empty list or object clears it."""

    description: Text | None = None
    type: AgentType | None = Field(None, description="Default: `autonomous`")
    parameters_schema: dict[str, Any] | None = Field(None, description="JSON Schema of a run's `parameters`")
    system_prompt: Text | None = None
    mcp_servers: McpServers | None = None
    skills: list[Text] | None = None
    tags: list[Text] | None = None
    capabilities: list[Text] | None = None
    demands: RunDemands | None = None

    def stored_fields(self) -> dict[str, Any]:
        """Return what was given, ready to store."""
        stored_values = self.model_dump(exclude_none=True, exclude={"name", "demands", "type"})
        if self.type is not None:
            stored_values["type"] = self.type.value
        if self.demands is not None:
            stored_values["demands"] = normalize_runner_demands(self.demands)
        return stored_values


def normalize_runner_demands(demands: RunDemands) -> dict[str, Any]:
    """Return demands as they are stored; no demands are an empty object."""
    stored_values = demands.model_dump(exclude_none=True)
    return stored_values if any(stored_values.values()) else {}


class NewBlueprint(BlueprintEdit):
    """A blueprint to add."""

    name: Text
    description: Text


class BlueprintOut(Schema):
    """A blueprint; fields that are not set are absent. Agents that a runner registered have `command`, `runner_id`."""

    name: str
    description: str
    type: str
    parameters_schema: dict[str, Any] = {}
    command: str = ""
    runner_id: str = ""
    system_prompt: str = ""
    mcp_servers: dict[str, Any] = {}
    skills: list[Any] = []
    tags: list[Any]
    capabilities: list[Any]
    demands: Any = None
    status: str
    created_at: str
    modified_at: str


class BlueprintQuery(Schema):
    """Which blueprints to list."""

    tags: Text | None = Field(None, description="Comma separated; a blueprint must have all of them")


@router.get(
    "/agents",
    auth=build_scoped_key_auth(*READERS),
    response={200: list[BlueprintOut], **error_responses()},
    exclude_unset=True,
    operation_id="list_blueprints",
    summary="List blueprints",
)
def list_blueprints(request: HttpRequest, listing: Query[BlueprintQuery]) -> list[dict[str, Any]]:
    """By name, as stored, inactive ones included; then the procedural agents that runners registered."""
    wanted_tags = {tag.strip() for tag in (listing.tags or "").split(",") if tag.strip()}
    rows, key = list(Blueprint.objects.order_by("name")), get_request_key_identity(request)
    shapes = [blueprint_as_json(row) for row in rows if wanted_tags <= set(row.tags or ())]
    written = {row.name for row in rows}
    shapes += [
        agent.runner_agent_as_json()
        for agent in load_procedural_runner_agents()
        if agent.name not in written and not wanted_tags
    ]
    return [mask_blueprint_for_key(key, shape) for shape in shapes]


class BlueprintForm(Schema):
    """How to show the blueprint."""

    raw: bool = Field(False, description="As stored, without what its capabilities add")


@router.get(
    "/agents/{name}",
    auth=build_scoped_key_auth(*READERS),
    response={200: BlueprintOut, **error_responses(404)},
    exclude_unset=True,
    operation_id="get_blueprint",
    summary="Get a blueprint, resolved or raw",
)
def get_blueprint(request: HttpRequest, name: Text, form: Query[BlueprintForm]) -> dict[str, Any]:
    """Resolved, the texts and MCP servers of its capabilities are merged in; 422 where that fails.

    Only a runner that holds a run of it gets the values of its MCP servers' variables and headers.
    A procedural agent that a runner registered is found too, unless there is a blueprint of its name.
    """
    brought = None if Blueprint.objects.filter(pk=name).exists() else find_procedural_runner_agent(name)
    if brought is not None:
        return mask_blueprint_for_key(get_request_key_identity(request), brought.runner_agent_as_json())
    blueprint = actions.find(name)
    if is_key_runner_running_blueprint(get_request_key_identity(request), name):
        return unmasked_blueprint_as_json(blueprint, raw=form.raw)
    shape = blueprint_as_json(blueprint) if form.raw else blueprint_with_capabilities_as_json(blueprint)
    return mask_blueprint_for_key(get_request_key_identity(request), shape)


@router.post(
    "/agents",
    auth=EDITORS,
    response={201: BlueprintOut, **error_responses(400, 409)},
    exclude_unset=True,
    operation_id="create_blueprint",
    summary="Add a blueprint",
)
def create_blueprint(request: HttpRequest, body: NewBlueprint) -> Status[dict[str, Any]]:
    """The name becomes part of paths: letters, digits, hyphens and underscores, at most 60."""
    identity = get_request_key_identity(request)
    blueprint = actions.add_blueprint(
        body.name, body.stored_fields(), actor=identity.caller_actor, now=timezone.now()
    )
    return Status(201, mask_blueprint_for_key(identity, blueprint_as_json(blueprint)))


@router.patch(
    "/agents/{name}",
    auth=EDITORS,
    response={200: BlueprintOut, **error_responses(404)},
    exclude_unset=True,
    operation_id="edit_blueprint",
    summary="Change a blueprint",
)
def edit_blueprint(request: HttpRequest, name: Text, body: BlueprintEdit) -> dict[str, Any]:
    """Only the given fields change. A value that was shown as `***` and is sent back stays as it is."""
    edited = actions.edit(
        name, body.stored_fields(), actor=get_request_key_identity(request).caller_actor, now=timezone.now()
    )
    return mask_blueprint_for_key(get_request_key_identity(request), blueprint_as_json(edited))


class BlueprintStatus(Enum):
    """Whether clients should offer the blueprint."""

    active = "active"
    inactive = "inactive"


class NewBlueprintStatus(BaseModel):
    """The status to set."""

    status: BlueprintStatus


@router.patch(
    "/agents/{name}/status",
    auth=EDITORS,
    response={200: BlueprintOut, **error_responses(404)},
    exclude_unset=True,
    operation_id="set_blueprint_status",
    summary="Switch a blueprint on or off",
)
def set_blueprint_status(request: HttpRequest, name: Text, body: NewBlueprintStatus) -> dict[str, Any]:
    """An inactive blueprint is still listed; clients hide it."""
    changed = actions.change_blueprint_status(
        name, body.status.value, actor=get_request_key_identity(request).caller_actor, now=timezone.now()
    )
    return mask_blueprint_for_key(get_request_key_identity(request), blueprint_as_json(changed))


@router.delete(
    "/agents/{name}",
    auth=EDITORS,
    response={204: None, **error_responses(404)},
    operation_id="delete_blueprint",
    summary="Delete a blueprint",
)
def delete_blueprint(request: HttpRequest, name: Text) -> Status[None]:
    """Sessions keep its name."""
    actions.remove_blueprint(name, actor=get_request_key_identity(request).caller_actor, now=timezone.now())
    return Status(204, None)
