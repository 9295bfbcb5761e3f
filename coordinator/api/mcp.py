"""MCP servers and grants in ClotoCore's forms. Reading needs a key; writing needs a signed-in person."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils import timezone
from ninja import Schema
from ninja.security import SessionAuth

from coordinator.actions.people import accounts
from coordinator.actions.policy import grants
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.errors import BadRequest, Forbidden, NotFound
from coordinator.identity import browser_secrets
from coordinator.identity.actors import person_actor
from coordinator.identity.roles import APPROVER, has_role
from coordinator.identity.scopes import OVERSEERS, READERS
from coordinator.mcp.servers import tools as mcp_tools
from coordinator.models import Grant, McpServer, McpTool
from coordinator.policy.deciders import decider_book as deciders
from coordinator.secrets import mask_command_arguments

router = Router(tags=["MCP servers"])


class PersonAuth(SessionAuth):
    """Asks for a signed-in person who may edit grants: with the CSRF token and the proof, as pages send them."""

    def authenticate(self, request: HttpRequest, key: str | None) -> Any:
        """Return the person; raise Forbidden for one without the right, or for a cookie alone."""
        user = request.user
        if not isinstance(user, User):
            return None
        if not has_role(user, APPROVER):
            raise Forbidden("You need the role approver to edit grants.")
        if not deciders.can_user_edit_policy(user):
            raise Forbidden(deciders.ADMINS_EDIT)
        require_browser_proof_or_audit(request, user)
        return user


def require_browser_proof_or_audit(request: HttpRequest, user: User) -> None:
    now = timezone.now()
    if (
        browser_secrets.find_browser_secret_problem(
            request.session, request.headers.get(browser_secrets.HEADER, ""), now
        )
        is None
    ):
        return
    address = str(request.META.get("REMOTE_ADDR") or "unknown")
    accounts.audit_unproven_session_attempt(user, address, f"{request.method} {request.path}", now)
    raise Forbidden(
        "A cookie alone is not enough to change grants. Also send the proof of the sign-in in the header "
        f"{browser_secrets.HEADER}."
    )


grant_editors = PersonAuth(csrf=True)


class GrantEntries(Schema):
    """Grants as ClotoCore's clients send them."""

    entries: list[dict[str, Any]]


class GrantedServers(Schema):
    """The servers that an agent may use as a whole."""

    granted_server_ids: list[str]


@router.get("/mcp/servers", auth=build_scoped_key_auth(*OVERSEERS), summary="List MCP servers")
def list_mcp_servers(request: HttpRequest) -> dict[str, Any]:
    """Returns every server; secrets among its arguments are masked."""
    tools: dict[str, list[str]] = {}
    for server_id, name in (
        McpTool.objects.filter(gone_at=None).order_by("name").values_list("server_id", "name")
    ):
        tools.setdefault(server_id, []).append(name)
    rows = [
        mcp_server_as_json(row, tools.get(row.name, []))
        for row in McpServer.objects.exclude(name=None).order_by("name")
    ]
    return {"servers": rows, "count": len(rows)}


def mcp_server_as_json(row: McpServer, tools: list[str]) -> dict[str, Any]:
    args = row.args if isinstance(row.args, list) else []
    return {
        "id": row.name,
        "command": row.command,
        "args": mask_command_arguments(map(str, args)),
        "description": row.description,
        "default_policy": row.default_policy,
        "is_active": row.is_active,
        "status": "Registered" if row.is_active else "Disabled",
        "created_at": int(row.created_at.timestamp()) if isinstance(row.created_at, datetime) else None,
        "tools": tools,
    }


@router.get(
    "/mcp/servers/{name}/access", auth=build_scoped_key_auth(*OVERSEERS), summary="List a server's grants"
)
def list_server_grants(request: HttpRequest, name: str) -> dict[str, Any]:
    """Returns the server's policy, tools and every grant that has not ended."""
    server = McpServer.objects.filter(pk=name).first()
    if server is None:
        raise NotFound(f"There is no MCP server {name}.")
    return {
        "server_id": name,
        "default_policy": server.default_policy,
        "tools": mcp_tools.collect_tool_names_by_server([name])[name],
        "entries": [
            grant_entry_as_json(row) for row in Grant.objects.not_ended(timezone.now()).filter(server_id=name)
        ],
    }


@router.get(
    "/mcp/access/by-agent/{agent_id}", auth=build_scoped_key_auth(*READERS), summary="List an agent's grants"
)
def list_agent_grants(request: HttpRequest, agent_id: str) -> dict[str, Any]:
    """Returns every grant of the agent that has not ended; a key that is bound to an agent sees its own only."""
    caller = request.auth  # type: ignore[attr-defined] # set by the guard
    if not caller.can_speak_for_agent(agent_id):
        raise Forbidden(
            f"This key is bound to {caller.bound_agents_label} and may not ask about other agents."
        )
    rows = Grant.objects.not_ended(timezone.now()).filter(agent_id=agent_id)
    return {"agent_id": agent_id, "entries": [grant_entry_as_json(row) for row in rows]}


def grant_entry_as_json(row: Grant) -> dict[str, Any]:
    fields = grants.serialize_grant(row)
    return {
        "id": fields.pop("grant_id"),
        "agent_id": row.agent_id,
        "server_id": row.server_id,
        "tool_name": row.tool_name,
        **fields,
        "metadata": row.metadata,
    }


@router.put("/mcp/servers/{name}/access", auth=grant_editors, summary="Replace a server's grants")
def replace_server_grants(request: HttpRequest, name: str, body: GrantEntries) -> dict[str, Any]:
    """Replaces the server's grants with the entries; capability rows stay."""
    if not McpServer.objects.filter(pk=name).exists():
        raise NotFound(f"There is no MCP server {name}.")
    by = person_actor(request.auth)  # type: ignore[attr-defined] # set by the guard
    changed = grants.replace_grants_of_server(name, body.entries, actor=by, now=timezone.now())
    return {
        "status": "success",
        "message": f"Access control updated for server '{name}'",
        "count": len(body.entries),
        "changed": len(changed),
    }


@router.put("/mcp/access/by-agent/{agent_id}", auth=grant_editors, summary="Replace an agent's servers")
def replace_agent_servers(request: HttpRequest, agent_id: str, body: GrantedServers) -> dict[str, Any]:
    """Allows the agent exactly these servers; its denials and tool grants stay."""
    if any(not name.strip() for name in body.granted_server_ids):
        raise BadRequest("A server needs a name.")
    ids = body.granted_server_ids
    actor = person_actor(request.auth)  # type: ignore[attr-defined]
    changed = grants.set_servers_allowed_to_agent(agent_id, ids, actor=actor, now=timezone.now())
    return {"status": "success", "agent_id": agent_id, "count": len(ids), "changed": len(changed)}
