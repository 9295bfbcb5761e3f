"""Signalbox's authorization at a server: discovered and registered when an administrator enables sign-in."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.errors import Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.mcp.protocol import oauth
from coordinator.mcp.protocol.http_client import HttpClient
from coordinator.mcp.protocol.oauth import AuthorizationEndpoints, AuthorizationFailed, OAuthClient
from coordinator.mcp.servers import sign_ins
from coordinator.models import McpAccessToken, McpAgentPerson, McpAuthorization, McpServer, McpUpstream
from coordinator.models.gateway import Transport
from coordinator.models.upstream_sign_ins import SignInMode

CLIENT_NAME = "Signalbox"
CLIENT_SECRET = "client secret"  # noqa: S105 - what it is sealed as
LONGEST_NAME = 2_000  # characters of scopes and of a client's id
GRANT_TYPES = {
    SignInMode.PERSON.value: ("authorization_code", "refresh_token"),
    SignInMode.SHARED.value: ("authorization_code", "refresh_token"),
    SignInMode.CLIENT.value: ("client_credentials",),
}


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    """An administrator's choices. Without `scopes` the server's are requested.

    Without a `client_id` the authorization server reads Signalbox's client document where it supports one, unless
    `must_register`; otherwise Signalbox registers itself. An empty `client_secret` with an unchanged client keeps its
    secret.
    """

    mode: str
    scopes: str = ""
    client_id: str = ""
    client_secret: str = ""
    must_register: bool = False


def register_and_save_server_authorization(
    server_id: str,
    authorization_settings: AuthorizationSettings,
    *,
    redirect_uri: str,
    document_url: str,
    actor: Actor,
    now: datetime,
) -> McpAuthorization:
    """Find the server's authorization server, register there if need be, and keep both.

    `document_url` is where Signalbox's client metadata is published; empty where nobody outside can read it. Sign-ins
    at another authorization server, or with another client, are forgotten. Raises NotFound, Forbidden for an API key,
    UnprocessableRequest for what cannot be, with the reason.
    """
    require_signed_in_person_for_oauth(actor)
    upstream = require_http_upstream(server_id)
    validate_authorization_settings(authorization_settings)
    existing = McpAuthorization.objects.filter(pk=server_id, server_url=upstream.url).first()
    try:
        endpoints, client, registered_for = asyncio.run(
            discover_endpoints_and_register_client(
                upstream,
                authorization_settings,
                existing,
                require_oauth_client(existing) if existing else None,
                redirect_uri=redirect_uri,
                document_url=document_url,
            )
        )
    except AuthorizationFailed as problem:
        raise UnprocessableRequest(str(problem)) from None
    with transaction.atomic():
        if not McpServer.objects.select_for_update().filter(pk=server_id).exists():
            raise NotFound(f"There is no MCP server {server_id}.")
        before = McpAuthorization.objects.filter(pk=server_id).first()
        row, _ = McpAuthorization.objects.update_or_create(
            server_id=server_id,
            defaults={
                "mode": authorization_settings.mode,
                "server_url": upstream.url or "",
                "scopes": authorization_settings.scopes,
                "endpoints": asdict(endpoints),
                "client_id": client.client_id,
                "client_secret": sign_ins.seal_token_or_none(
                    server_id, None, CLIENT_SECRET, client.client_secret
                ),
                "client_auth": client.authentication,
                "registered_for": registered_for,
                "changed_by": str(actor),
                "changed_at": now,
            },
        )
        if before is not None and not has_same_oauth_client(before, row):
            McpAccessToken.objects.filter(server_id=server_id).delete()
        mark_upstream_changed(server_id, now)
        audit.record_audit_entry(
            "MCP_SIGN_IN_SET",
            actor=actor,
            target=server_id,
            result="success",
            metadata={
                "mode": authorization_settings.mode,
                "issuer": endpoints.issuer,
                "client_id": client.client_id,
                "scopes": authorization_settings.scopes or endpoints.scopes,
            },
            now=now,
        )
    return row


def remove_server_authorization(server_id: str, *, actor: Actor, now: datetime) -> None:
    """Send no access token to the server any more, and forget all sign-ins. Raises NotFound, Forbidden for a key."""
    require_signed_in_person_for_oauth(actor)
    with transaction.atomic():
        deleted, _ = McpAuthorization.objects.filter(pk=server_id).delete()
        if not deleted:
            raise NotFound(f"Nobody signs in at the server {server_id}.")
        tokens, _ = McpAccessToken.objects.filter(server_id=server_id).delete()
        mark_upstream_changed(server_id, now)
        audit.record_audit_entry(
            "MCP_SIGN_IN_REMOVED",
            actor=actor,
            target=server_id,
            result="success",
            metadata={"sign_ins": tokens},
            now=now,
        )


def set_agent_sign_in_user(agent_id: str, user_id: int | None, *, actor: Actor, now: datetime) -> None:
    """Say with whose sign-ins an agent calls servers; with `user_id` None, with nobody's.

    Raises Forbidden for an API key, UnprocessableRequest for an unknown person or no agent.
    """
    require_signed_in_person_for_oauth(actor)
    agent_id = agent_id.strip()
    if not agent_id or len(agent_id) > LONGEST_NAME:
        raise UnprocessableRequest("Enter the agent's id.")
    user = User.objects.filter(pk=user_id or 0, is_active=True).first()
    if user_id is not None and user is None:
        raise UnprocessableRequest("Choose a person with an active account.")
    with transaction.atomic():
        if user is None:
            McpAgentPerson.objects.filter(pk=agent_id).delete()
        else:
            McpAgentPerson.objects.update_or_create(
                agent_id=agent_id,
                defaults={"user_id": user.pk, "changed_by": str(actor), "changed_at": now},
            )
        audit.record_audit_entry(
            "MCP_AGENT_PERSON_SET",
            actor=actor,
            target=agent_id,
            result="success",
            metadata={"person": user.get_username() if user else None},
            now=now,
        )


def require_authorization_and_upstream(server_id: str) -> tuple[McpAuthorization, McpUpstream]:
    """Return a server's authorization and its address. Raises NotFound where nobody signs in there, and
    UnprocessableRequest where the address is not the one that it was set up for."""
    row = McpAuthorization.objects.filter(pk=server_id).first()
    if row is None:
        raise NotFound(f"Nobody signs in at the server {server_id}.")
    upstream = require_http_upstream(server_id)
    if upstream.url != row.server_url:
        raise UnprocessableRequest(
            f"The address of the server {server_id} was changed. An administrator must save its sign-in again, so that "
            "no token goes to another server."
        )
    return row, upstream


def require_oauth_client(authorization: McpAuthorization) -> OAuthClient:
    """Return who Signalbox is at the authorization server. Raises SignInNeeded where its secret cannot be read."""
    secret = sign_ins.unseal_token(authorization.server_id, None, CLIENT_SECRET, authorization.client_secret)
    return OAuthClient(authorization.client_id, secret, authorization.client_auth)


async def discover_endpoints_and_register_client(
    upstream: McpUpstream,
    authorization_settings: AuthorizationSettings,
    existing: McpAuthorization | None,
    existing_client: OAuthClient | None,
    *,
    redirect_uri: str,
    document_url: str,
) -> tuple[AuthorizationEndpoints, OAuthClient, str]:
    """Return the endpoints, the client, and the redirect address that it was registered with, if it was.

    A client that was registered for the same redirect address at the same authorization server is kept.
    """
    # Not at the top: the SDK is half a second and 27 MB that most processes never need.
    from coordinator.mcp.protocol import oauth_discovery  # noqa: PLC0415

    grant_types, private = GRANT_TYPES[authorization_settings.mode], upstream.private_network
    http = HttpClient()
    try:
        endpoints = await oauth_discovery.discover_authorization_endpoints(
            http, upstream.url or "", private=private, grant_types=grant_types
        )
        if authorization_settings.client_id:
            secret = authorization_settings.client_secret
            if (
                not secret
                and existing_client is not None
                and existing_client.client_id == authorization_settings.client_id
            ):
                secret = existing_client.client_secret
            authentication = oauth.choose_client_authentication(endpoints, is_public=not secret)
            return (
                endpoints,
                OAuthClient(authorization_settings.client_id, secret, authentication if secret else "none"),
                "",
            )
        if authorization_settings.mode == SignInMode.CLIENT:
            raise AuthorizationFailed(
                "Client credentials need a client: register one at the authorization server "
                f"{endpoints.issuer}, and enter its id and secret."
            )
        if endpoints.takes_client_document and document_url and not authorization_settings.must_register:
            return endpoints, OAuthClient(document_url), ""
        if (
            existing is not None
            and existing_client is not None
            and existing.registered_for == redirect_uri
            and existing.endpoints.get("issuer") == endpoints.issuer
        ):
            return endpoints, existing_client, redirect_uri
        if not endpoints.registration_endpoint:
            raise AuthorizationFailed(
                f"The authorization server {endpoints.issuer} registers no clients by itself. Register one there with "
                f"the redirect address {redirect_uri}, and enter its id and secret."
            )
        client = await oauth.register_oauth_client(
            http,
            endpoints,
            redirect_uri=redirect_uri,
            name=CLIENT_NAME,
            private=private,
            grant_types=grant_types,
        )
        return endpoints, client, redirect_uri
    finally:
        http.close()


def require_http_upstream(server_id: str) -> McpUpstream:
    upstream = McpUpstream.objects.filter(pk=server_id).first()
    if upstream is None or upstream.transport != Transport.HTTP or not upstream.url:
        raise UnprocessableRequest(
            f"The server {server_id} is not reached by HTTP through the gateway, so nobody can sign in there."
        )
    return upstream


def has_same_oauth_client(before: McpAuthorization, after: McpAuthorization) -> bool:
    """Return whether tokens that were issued before are still good for who asks now."""
    issuers = [
        row.endpoints.get("issuer") if isinstance(row.endpoints, dict) else None for row in (before, after)
    ]
    return (before.mode, before.client_id, before.server_url, issuers[0]) == (
        after.mode,
        after.client_id,
        after.server_url,
        issuers[1],
    )


def mark_upstream_changed(server_id: str, now: datetime) -> None:
    """Record that a server's connection has changed: each worker reloads it."""
    McpUpstream.objects.filter(pk=server_id).update(changed_at=now)


def require_signed_in_person_for_oauth(actor: Actor) -> None:
    if actor.kind != "user":
        raise Forbidden("Only a signed-in person can change how Signalbox signs in at a server.")


def validate_authorization_settings(authorization_settings: AuthorizationSettings) -> None:
    if authorization_settings.mode not in SignInMode.values:
        raise UnprocessableRequest("Choose who signs in.")
    for text, noun in (
        (authorization_settings.scopes, "scopes"),
        (authorization_settings.client_id, "client id"),
    ):
        if len(text) > LONGEST_NAME or not text.isascii() or (text and not text.isprintable()):
            raise UnprocessableRequest(
                f"The {noun} must be printable ASCII, at most {LONGEST_NAME} characters."
            )
    if len(authorization_settings.client_secret) > oauth.LONGEST_TOKEN:
        raise UnprocessableRequest(f"The client's secret may have at most {oauth.LONGEST_TOKEN} characters.")
    if authorization_settings.client_secret and not authorization_settings.client_id:
        raise UnprocessableRequest("A client secret needs the client's id.")


def reencrypt_client_secret(row: McpAuthorization) -> int:
    """Seal a client's secret with the newest key where it is not; return how many values that were."""
    before = row.client_secret
    row.client_secret = sign_ins.reseal_token_with_newest_key(row.server_id, None, CLIENT_SECRET, before)
    row.save(update_fields=["client_secret"])
    return int(row.client_secret != before)
