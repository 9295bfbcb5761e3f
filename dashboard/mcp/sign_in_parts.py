"""The part of a server's page about sign-in: its mode, who is signed in, whose sign-in agents use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.urls import reverse

from coordinator.actions.mcp import mcp_sign_ins
from coordinator.identity.roles import ADMIN, has_role
from coordinator.models import McpAccessToken, McpAgentPerson, McpAuthorization, McpServer, McpUpstream
from coordinator.models.gateway import Transport
from coordinator.models.upstream_sign_ins import SignInMode
from dashboard.mcp.access_sheet import list_agent_ids_including_unknown

MOST_SHOWN = 100  # sign-ins, agents or people on one page


@dataclass(frozen=True, slots=True)
class SignInLine:
    """One sign-in at a server. `person` is empty for the shared one."""

    token_id: int
    person: str
    is_own: bool
    problem: str
    needs_sign_in: bool
    issued_at: datetime | None
    expires_at: datetime | None
    is_renewed: bool
    scopes: str


@dataclass(frozen=True, slots=True)
class AgentPersonLine:
    """An agent, and the name of the person whose sign-in it uses at servers."""

    agent_id: str
    person: str


def build_oauth_redirect_uri() -> str:
    """Return the URL to which authorization servers redirect people. On loopback it has an IP address."""
    base = settings.AGENT_URL if settings.OWN_HOST else settings.PUBLIC_URL
    return base + reverse("mcp:sign-in-back")


def oauth_client_metadata_url() -> str:
    """Return the URL of Signalbox's OAuth client metadata; empty without HTTPS."""
    return settings.PUBLIC_URL + reverse("mcp:client-document") if settings.HTTPS else ""


def build_sign_in_context(server: McpServer, user: User | AnonymousUser) -> dict[str, Any]:
    """Return the template context of the page's part about sign-in, for one person."""
    assert isinstance(user, User)
    upstream = McpUpstream.objects.filter(pk=server.name).first()
    authorization = McpAuthorization.objects.filter(pk=server.name).first()
    is_admin = has_role(user, ADMIN)
    context: dict[str, Any] = {
        "is_possible": upstream is not None and upstream.transport == Transport.HTTP and bool(upstream.url),
        "authorization": authorization,
        "modes": SignInMode.choices,
        "redirect_uri": build_oauth_redirect_uri(),
        "document_url": oauth_client_metadata_url(),
    }
    if authorization is None:
        return {"sign_in": context}
    own_row = mcp_sign_ins.find_access_token_row(authorization, user)
    lines = list_sign_ins(server.name, user)
    endpoints = authorization.endpoints if isinstance(authorization.endpoints, dict) else {}
    has_document = authorization.client_id.endswith(reverse("mcp:client-document"))
    context |= {
        "entered_client_id": "" if has_document or authorization.registered_for else authorization.client_id,
        "is_own_address_changed": (
            authorization.client_id != oauth_client_metadata_url()
            if has_document
            else authorization.registered_for not in {"", build_oauth_redirect_uri()}
        ),
        "mode_label": sign_in_mode_label(authorization.mode),
        "issuer": endpoints.get("issuer", ""),
        "asked_scopes": authorization.scopes or endpoints.get("scopes", ""),
        "is_moved": upstream is not None and upstream.url != authorization.server_url,
        "may_sign_in": mcp_sign_ins.can_sign_in_to_server(authorization, is_admin=is_admin),
        "is_signed_in": own_row is not None and not own_row.needs_sign_in,
        "lines": [line for line in lines if is_admin or line.is_own or not line.person],
        "others": sum(1 for line in lines if line.person and not line.is_own),
    }
    if authorization.mode == SignInMode.PERSON:
        context |= {
            "agent_people": list_agents_with_chosen_person(),
            "people": User.objects.filter(is_active=True).order_by("username")[:MOST_SHOWN],
            "agent_ids": list_agent_ids_including_unknown()[:MOST_SHOWN] if is_admin else [],
        }
    return {"sign_in": context}


def sign_in_mode_label(mode: str) -> str:
    return SignInMode(mode).label if mode in SignInMode.values else mode


def list_sign_ins(server_id: str, user: User) -> list[SignInLine]:
    """Return the sign-ins at a server: the shared one first, then by person."""
    rows = list(McpAccessToken.objects.filter(server_id=server_id).order_by("user_id")[:MOST_SHOWN])
    names = load_usernames_by_id(row.user_id for row in rows if row.user_id is not None)
    lines = [
        SignInLine(
            row.pk,
            "" if row.user_id is None else names.get(row.user_id, f"a deleted person ({row.user_id})"),
            row.user_id == user.pk,
            row.problem or "",
            row.needs_sign_in,
            row.issued_at,
            row.expires_at,
            bool(row.refresh_token),
            row.scopes,
        )
        for row in rows
    ]
    return sorted(lines, key=lambda line: line.person)


def list_agents_with_chosen_person() -> list[AgentPersonLine]:
    """Return the agents for which a person was chosen, sorted by id."""
    rows = list(McpAgentPerson.objects.order_by("agent_id")[:MOST_SHOWN])
    names = load_usernames_by_id(row.user_id for row in rows)
    return [AgentPersonLine(row.agent_id, names.get(row.user_id, "a deleted person")) for row in rows]


def load_usernames_by_id(user_ids: Any) -> dict[int, str]:
    return dict(User.objects.filter(pk__in=list(user_ids)).values_list("pk", "username"))


def count_needed_sign_ins_by_server() -> dict[str, int]:
    """Return the number of sign-ins at each server that have ended, or that somebody still has to make."""
    counts: dict[str, int] = {}
    for row in McpAccessToken.objects.exclude(problem=None).only("server_id"):
        counts[row.server_id] = counts.get(row.server_id, 0) + 1
    return counts
