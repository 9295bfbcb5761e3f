"""Capabilities over HTTP: texts, MCP servers and scripts that blueprints share."""

from __future__ import annotations

from enum import Enum
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Schema, Status
from pydantic import BaseModel, Field

from coordinator.actions.agents import capabilities as actions
from coordinator.api.agents import EDITORS, McpServers
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.api.shared_types import Text, error_responses, get_request_key_identity
from coordinator.identity.scopes import READERS
from coordinator.models import Capability
from coordinator.runs.blueprints import capability_as_json, capability_summary_as_json, mask_blueprint_for_key

router = Router(tags=["Capabilities"])


class CapabilityType(Enum):
    """What a capability contains."""

    text = "text"
    mcp = "mcp"
    script = "script"


class CapabilityEdit(BaseModel):
    """What to change; null leaves a field as it is, an empty value clears it."""

    description: Text | None = None
    type: CapabilityType | None = Field(None, description="Default: what its content shows")
    text: Text | None = None
    script: Text | None = Field(None, description="The script's name on its runner")
    mcp_servers: McpServers | None = None

    def stored_fields(self) -> dict[str, Any]:
        """Return what was given, ready to store."""
        return self.model_dump(exclude_none=True, exclude={"name"}, mode="json")


class NewCapability(CapabilityEdit):
    """A capability to add."""

    name: Text
    description: Text


class CapabilityOut(Schema):
    """A capability, without the fields that are not set."""

    name: str
    description: str
    type: str
    text: str = ""
    script: str = ""
    mcp_servers: dict[str, Any] = {}
    created_at: str
    modified_at: str


class CapabilitySummary(Schema):
    """A capability as lists show it."""

    name: str
    description: str
    type: str
    has_script: bool
    script_name: str | None
    has_text: bool
    has_mcp: bool
    mcp_server_names: list[str]
    created_at: str
    modified_at: str


@router.get(
    "/capabilities",
    auth=build_scoped_key_auth(*READERS),
    response={200: list[CapabilitySummary], **error_responses()},
    operation_id="list_capabilities",
    summary="List capabilities",
)
def list_capabilities(request: HttpRequest) -> list[dict[str, Any]]:
    """By name, in short."""
    return [capability_summary_as_json(row) for row in Capability.objects.order_by("name")]


@router.get(
    "/capabilities/{name}",
    auth=build_scoped_key_auth(*READERS),
    response={200: CapabilityOut, **error_responses(404)},
    exclude_unset=True,
    operation_id="get_capability",
    summary="Get a capability",
)
def get_capability(request: HttpRequest, name: Text) -> dict[str, Any]:
    """Its text and MCP servers in full, without the values of variables and headers."""
    return mask_blueprint_for_key(get_request_key_identity(request), capability_as_json(actions.find(name)))


@router.post(
    "/capabilities",
    auth=EDITORS,
    response={201: CapabilityOut, **error_responses(400, 409)},
    exclude_unset=True,
    operation_id="create_capability",
    summary="Add a capability",
)
def create_capability(request: HttpRequest, body: NewCapability) -> Status[dict[str, Any]]:
    """The name follows the same rule as a blueprint's."""
    identity = get_request_key_identity(request)
    capability = actions.create(
        body.name, body.stored_fields(), actor=identity.caller_actor, now=timezone.now()
    )
    return Status(201, mask_blueprint_for_key(identity, capability_as_json(capability)))


@router.patch(
    "/capabilities/{name}",
    auth=EDITORS,
    response={200: CapabilityOut, **error_responses(404)},
    exclude_unset=True,
    operation_id="edit_capability",
    summary="Change a capability",
)
def edit_capability(request: HttpRequest, name: Text, body: CapabilityEdit) -> dict[str, Any]:
    """Only the given fields change; every blueprint that uses it follows."""
    edited = actions.edit(
        name, body.stored_fields(), actor=get_request_key_identity(request).caller_actor, now=timezone.now()
    )
    return mask_blueprint_for_key(get_request_key_identity(request), capability_as_json(edited))


@router.delete(
    "/capabilities/{name}",
    auth=EDITORS,
    response={204: None, **error_responses(404, 409)},
    operation_id="delete_capability",
    summary="Delete a capability",
)
def delete_capability(request: HttpRequest, name: Text) -> Status[None]:
    """409 while blueprints refer to it."""
    actions.remove_capability(name, actor=get_request_key_identity(request).caller_actor, now=timezone.now())
    return Status(204, None)
