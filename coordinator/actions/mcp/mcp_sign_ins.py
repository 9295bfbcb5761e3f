"""Access tokens for MCP servers: issued at sign-in, renewed before they end, deleted on sign-out.

A token is renewed by one worker at a time: the worker that wins the row's `renewing_until` sends the request, the
others wait for the result. The request runs on the event loop (coordinator.edge.gateway.access_tokens), so no thread
waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from coordinator.actions.audit import audit
from coordinator.actions.mcp import mcp_authorizations
from coordinator.actions.notifications.announcing import announce_needed_sign_in
from coordinator.errors import Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import person_actor, system_actor
from coordinator.mcp.protocol import oauth
from coordinator.mcp.protocol.http_client import HttpClient
from coordinator.mcp.protocol.oauth import (
    AuthorizationEndpoints,
    AuthorizationFailed,
    GrantRejected,
    IssuedTokens,
    OAuthClient,
)
from coordinator.mcp.servers import sign_ins
from coordinator.mcp.servers.sign_ins import SignInNeeded
from coordinator.models import McpAccessToken, McpAuthorization
from coordinator.models.upstream_sign_ins import SignInMode

ACCESS, REFRESH = "access token", "refresh token"  # what they are sealed as
RENEWED_BEFORE = timedelta(seconds=60)  # before its end a token is renewed
RENEWAL_LEASE = timedelta(seconds=25)  # longer than a request to the token endpoint may take
LONGEST_CODE = 4_096  # characters
NEVER_SIGNED_IN = "Nobody has signed in yet."


@dataclass(frozen=True, slots=True)
class StoredToken:
    """An access token that can be used now, and its row."""

    token_id: int
    access_token: str


@dataclass(frozen=True, slots=True)
class TokenRenewal:
    """What the token endpoint is asked to get a new access token, by who won the right to ask."""

    token_id: int
    server_id: str
    endpoints: AuthorizationEndpoints
    client: OAuthClient
    fields: Mapping[str, str]
    private: bool


@dataclass(frozen=True, slots=True)
class SignInAddress:
    """Where a person signs in for a server, and what has to come back from there."""

    address: str
    issuer: str


def build_sign_in_address(
    server_id: str, user: User, *, redirect_uri: str, state: str, verifier: str
) -> SignInAddress:
    """Return where a person signs in. Raises NotFound, Forbidden for who may not, UnprocessableRequest."""
    authorization, _ = mcp_authorizations.require_authorization_and_upstream(server_id)
    if authorization.mode == SignInMode.CLIENT:
        raise UnprocessableRequest(
            f"Nobody signs in at the server {server_id}: it is given client credentials."
        )
    endpoints = AuthorizationEndpoints.from_stored(authorization.endpoints)
    token_row = find_access_token_row(authorization, user)
    address = oauth.build_authorization_url(
        endpoints,
        authorization.client_id,
        redirect_uri=redirect_uri,
        state=state,
        verifier=verifier,
        scopes=join_oauth_scopes(
            authorization.scopes or endpoints.scopes,
            token_row.scopes if token_row and token_row.needs_sign_in else "",
        ),
    )
    return SignInAddress(address, endpoints.issuer)


def join_oauth_scopes(*scopes: str) -> str:
    """Return all scopes, each once, in their order."""
    return " ".join(dict.fromkeys(scope for text in scopes for scope in text.split()))


def complete_server_sign_in(
    server_id: str,
    user: User,
    *,
    code: str,
    issuer: str,
    expected_issuer: str,
    verifier: str,
    redirect_uri: str,
    now: datetime,
) -> None:
    """Have the code that came back exchanged for tokens, and keep these.

    Raises NotFound, Forbidden, UnprocessableRequest where no token was issued, with the reason.
    """
    authorization, upstream = mcp_authorizations.require_authorization_and_upstream(server_id)
    if not 0 < len(code) <= LONGEST_CODE:
        raise UnprocessableRequest("The authorization server sent no code.")
    try:
        endpoints = AuthorizationEndpoints.from_stored(authorization.endpoints)
        if endpoints.issuer != expected_issuer:
            raise AuthorizationFailed("The server's sign-in was changed meanwhile. Sign in again.")
        oauth.require_expected_authorization_issuer(endpoints, issuer)
        issued = asyncio.run(
            request_tokens_on_new_connection(
                endpoints,
                mcp_authorizations.require_oauth_client(authorization),
                {
                    "grant_type": "authorization_code",
                    "code": code,
                    "redirect_uri": redirect_uri,
                    "code_verifier": verifier,
                },
                private=upstream.private_network,
            )
        )
    except AuthorizationFailed as problem:
        raise UnprocessableRequest(str(problem)) from None
    owner = user.pk if authorization.mode == SignInMode.PERSON else None
    with transaction.atomic():
        unchanged = McpAuthorization.objects.select_for_update().filter(
            pk=server_id, changed_at=authorization.changed_at
        )
        if not unchanged.exists():
            raise UnprocessableRequest("The server's sign-in was changed meanwhile. Sign in again.")
        row, _ = McpAccessToken.objects.select_for_update().get_or_create(server_id=server_id, user_id=owner)
        store_issued_tokens(row, issued, now)
        mcp_authorizations.mark_upstream_changed(server_id, now)
        audit.record_audit_entry(
            "MCP_SIGNED_IN",
            actor=person_actor(user),
            target=server_id,
            result="success",
            metadata={"for": "everybody" if owner is None else user.get_username(), "scopes": row.scopes},
            now=now,
        )


async def request_tokens_on_new_connection(
    endpoints: AuthorizationEndpoints, client: OAuthClient, fields: Mapping[str, str], *, private: bool
) -> IssuedTokens:
    """Return what the token endpoint issues, asked over a connection of its own."""
    http = HttpClient()
    try:
        return await oauth.request_tokens(http, endpoints, client, fields, private=private)
    finally:
        http.close()


def sign_out_and_return_revocation_problem(
    token_id: int, user: User, *, is_admin: bool, now: datetime
) -> str:
    """Forget a person's tokens, or, for an administrator, those of everybody; ask the server to forget them too.

    Returns what became of it there, empty where all went well. Raises NotFound, Forbidden.
    """
    row = McpAccessToken.objects.filter(pk=token_id).first()
    if row is None:
        raise NotFound("This sign-in has ended already.")
    if row.user_id != user.pk and not is_admin:
        raise Forbidden("Only an administrator can end the sign-ins of others.")
    with transaction.atomic():
        McpAccessToken.objects.filter(pk=row.pk).delete()
        mcp_authorizations.mark_upstream_changed(row.server_id, now)
        audit.record_audit_entry(
            "MCP_SIGNED_OUT",
            actor=person_actor(user),
            target=row.server_id,
            result="success",
            metadata={"user_id": row.user_id},
            now=now,
        )
    try:
        authorization, upstream = mcp_authorizations.require_authorization_and_upstream(row.server_id)
        endpoints = AuthorizationEndpoints.from_stored(authorization.endpoints)
        if endpoints.revocation_endpoint:
            asyncio.run(
                revoke_tokens_over_new_connection(
                    endpoints,
                    mcp_authorizations.require_oauth_client(authorization),
                    [
                        token
                        for token in (decrypt_oauth_token(row, REFRESH), decrypt_oauth_token(row, ACCESS))
                        if token
                    ],
                    private=upstream.private_network,
                )
            )
    except (AuthorizationFailed, NotFound, UnprocessableRequest, SignInNeeded) as problem:
        return str(problem)
    return ""


async def revoke_tokens_over_new_connection(
    endpoints: AuthorizationEndpoints, client: OAuthClient, tokens: list[str], *, private: bool
) -> None:
    """Have tokens revoked over a connection of its own."""
    http = HttpClient()
    try:
        for token in tokens:
            await oauth.revoke_token(http, endpoints, client, token, private=private)
    finally:
        http.close()


def find_access_token_row(authorization: McpAuthorization, user: User) -> McpAccessToken | None:
    """Return the row of the tokens that a person signs in for: their own, or the one that all share."""
    owner = user.pk if authorization.mode == SignInMode.PERSON else None
    return McpAccessToken.objects.filter(server_id=authorization.server_id, user_id=owner).first()


def get_token_or_claim_renewal(
    server_id: str, agent_id: str, now: datetime, rejected: str = "", person: int | None = None
) -> StoredToken | TokenRenewal | None:
    """Return the token for a request, or what to ask for a new one; None while another worker asks.

    The request is an agent's, or a `person`'s own. `rejected` is the token that the server did not take. Raises
    SignInNeeded where a person has to sign in, and what
    `require_authorization_and_upstream` raises.
    """
    authorization, upstream = mcp_authorizations.require_authorization_and_upstream(server_id)
    owner = sign_ins.resolve_token_owner_id(authorization, agent_id, person)
    row = McpAccessToken.objects.filter(server_id=server_id, user_id=owner).first()
    if row is None:
        row, _ = McpAccessToken.objects.get_or_create(server_id=server_id, user_id=owner)
    access_token = decrypt_oauth_token(row, ACCESS)
    is_usable = bool(access_token) and access_token != rejected and not row.problem
    if is_usable and (row.expires_at is None or row.expires_at > now + RENEWED_BEFORE):
        return StoredToken(row.pk, access_token)
    refresh_token = decrypt_oauth_token(row, REFRESH)
    if authorization.mode == SignInMode.CLIENT:
        fields = {"grant_type": "client_credentials"}
        if (
            scopes := authorization.scopes
            or AuthorizationEndpoints.from_stored(authorization.endpoints).scopes
        ):
            fields["scope"] = scopes
    elif refresh_token and not row.problem:
        fields = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    elif is_usable and row.expires_at is not None and row.expires_at > now:
        return StoredToken(row.pk, access_token)
    else:
        if not row.problem:
            row.problem = "The sign-in has ended." if access_token else NEVER_SIGNED_IN
            record_required_sign_in(row.pk, row.problem, now)
        raise SignInNeeded(describe_needed_sign_in(authorization, row))
    is_free = (
        Q(renewing_until__isnull=True)
        | Q(renewing_until__lt=now)
        | Q(renewing_until__gt=now + 2 * RENEWAL_LEASE)
    )
    claimed = McpAccessToken.objects.filter(is_free, pk=row.pk, access_token=row.access_token).update(
        renewing_until=now + RENEWAL_LEASE
    )
    if not claimed:
        return None
    return TokenRenewal(
        row.pk,
        server_id,
        AuthorizationEndpoints.from_stored(authorization.endpoints),
        mcp_authorizations.require_oauth_client(authorization),
        fields,
        upstream.private_network,
    )


def finish_renewal_and_require_token(
    renewal: TokenRenewal, issued: IssuedTokens | AuthorizationFailed, now: datetime
) -> StoredToken:
    """Keep what the token endpoint issued, and give the right to ask back.

    Raises SignInNeeded where it refused for good, and where it could not be asked: then the next request asks again.
    """
    with transaction.atomic():
        row = McpAccessToken.objects.select_for_update().filter(pk=renewal.token_id).first()
        if row is None:
            raise SignInNeeded(f"The sign-in at the server {renewal.server_id} was ended.")
        if isinstance(issued, IssuedTokens):
            store_issued_tokens(row, issued, now)
            return StoredToken(row.pk, issued.access_token)
        row.renewing_until = None
        row.save(update_fields=["renewing_until"])
    if isinstance(issued, GrantRejected):
        record_required_sign_in(row.pk, str(issued), now)
    raise SignInNeeded(f"No access token for the server {renewal.server_id} was issued: {issued}")


def record_required_sign_in(token_id: int, problem: str, now: datetime, *, scopes: str = "") -> None:
    """Note why somebody has to sign in again, once, and the `scopes` that are to be asked for then."""
    with transaction.atomic():
        row = McpAccessToken.objects.select_for_update().filter(pk=token_id, problem__isnull=True).first()
        if row is None:
            return
        row.problem, row.renewing_until = problem[:500], None
        row.scopes = join_oauth_scopes(row.scopes, scopes)[:2_000]
        row.save(update_fields=["problem", "renewing_until", "scopes"])
        mcp_authorizations.mark_upstream_changed(row.server_id, now)
        announce_needed_sign_in(row, now=now)
        audit.record_audit_entry(
            "MCP_SIGN_IN_NEEDED",
            actor=system_actor("gateway"),
            target=row.server_id,
            result="failure",
            metadata={"user_id": row.user_id, "reason": row.problem},
            now=now,
        )


def describe_needed_sign_in(authorization: McpAuthorization, row: McpAccessToken) -> str:
    """Return the message for a program that called a server at which nobody is signed in."""
    if row.user_id is None:
        signer = "an administrator"
    else:
        signer = User.objects.filter(pk=row.user_id).values_list("username", flat=True).first() or "a person"
    reason = row.problem or "The sign-in has ended."
    return (
        f"needs a sign-in: {signer} must sign in on the page of the MCP server {authorization.server_id} in "
        f"Signalbox ({reason})"
    )


def store_issued_tokens(row: McpAccessToken, issued: IssuedTokens, now: datetime) -> None:
    """Write issued tokens into their row. A refresh token that was not replaced stays."""
    row.access_token = sign_ins.seal_token_or_none(row.server_id, row.user_id, ACCESS, issued.access_token)
    if issued.refresh_token:
        row.refresh_token = sign_ins.seal_token_or_none(
            row.server_id, row.user_id, REFRESH, issued.refresh_token
        )
    if issued.scopes:
        row.scopes = issued.scopes
    row.issued_at, row.renewing_until, row.problem = now, None, None
    row.expires_at = None if issued.expires_in is None else now + timedelta(seconds=issued.expires_in)
    row.save()


def decrypt_oauth_token(row: McpAccessToken, name: str) -> str:
    """Return a row's token, empty where there is none. Raises SignInNeeded for one that cannot be opened."""
    sealed = row.access_token if name == ACCESS else row.refresh_token
    return sign_ins.unseal_token(row.server_id, row.user_id, name, sealed)


def reencrypt_oauth_tokens(row: McpAccessToken) -> int:
    """Seal a row's tokens with the newest key where they are not; return how many values that were."""
    before = row.access_token, row.refresh_token
    row.access_token = sign_ins.reseal_token_with_newest_key(
        row.server_id, row.user_id, ACCESS, row.access_token
    )
    row.refresh_token = sign_ins.reseal_token_with_newest_key(
        row.server_id, row.user_id, REFRESH, row.refresh_token
    )
    row.save(update_fields=["access_token", "refresh_token"])
    return sum(one != other for one, other in zip(before, (row.access_token, row.refresh_token), strict=True))


def can_sign_in_to_server(authorization: McpAuthorization, *, is_admin: bool) -> bool:
    """Return whether a person may sign in: everybody for themselves, administrators for everybody."""
    if authorization.mode == SignInMode.PERSON:
        return True
    return authorization.mode == SignInMode.SHARED and is_admin


def require_server_sign_in_right(authorization: McpAuthorization, *, is_admin: bool) -> None:
    """Raise Forbidden where a person may not sign in."""
    if not can_sign_in_to_server(authorization, is_admin=is_admin):
        raise Forbidden("Only an administrator can sign in for everybody.")
