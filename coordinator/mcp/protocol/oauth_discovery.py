"""Finding the authorization server of an MCP server, by the official SDK's rules.

The order of addresses, the metadata's models and the choice of scopes are the SDK's. Signalbox asks, through its own
guarded client, and checks more: an issuer that is another's, or a server without PKCE, is refused.
"""

from __future__ import annotations

import httpx2
import msgspec
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    issuers_match,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import ValidationError

from coordinator.mcp.protocol.http_client import HttpClient
from coordinator.mcp.protocol.oauth import (
    DEFAULT_AUTHENTICATIONS,
    JSON,
    AuthorizationEndpoints,
    AuthorizationFailed,
    OAuthAnswer,
    fetch_raw_oauth_answer,
)

MOST_ADDRESSES = 6  # that are tried for one document
INITIALIZE = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": "signalbox-sign-in",
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "signalbox", "version": "1"},
        },
    }
)


async def discover_authorization_endpoints(
    http: HttpClient, server_url: str, *, private: bool, grant_types: tuple[str, ...]
) -> AuthorizationEndpoints:
    """Return how a person, or Signalbox itself, is authorized for the server. Raises AuthorizationFailed.

    `private` allows addresses of this network, as for the server itself.
    """
    challenge = await fetch_www_authenticate_response(http, server_url, private=private)
    resource = await fetch_resource_metadata_or_none(http, server_url, challenge, private=private)
    issuer = str(resource.authorization_servers[0]) if resource else None
    metadata, own_issuer = await fetch_server_metadata_and_issuer(http, issuer, server_url, private=private)
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise AuthorizationFailed(
            f"The authorization server {own_issuer[:300]} does not say that it supports PKCE (S256), so a sign-in "
            "there could be stolen."
        )
    scopes = get_client_metadata_scopes(
        extract_scope_from_www_auth(challenge), resource, metadata, list(grant_types)
    )
    methods = metadata.token_endpoint_auth_methods_supported
    return AuthorizationEndpoints(
        resource=str(resource.resource) if resource else resource_url_from_server_url(server_url),
        issuer=own_issuer,
        authorization_endpoint=require_usable_endpoint_url(metadata.authorization_endpoint, private),
        token_endpoint=require_usable_endpoint_url(metadata.token_endpoint, private),
        registration_endpoint=require_usable_endpoint_url(
            metadata.registration_endpoint, private, optional=True
        ),
        revocation_endpoint=require_usable_endpoint_url(metadata.revocation_endpoint, private, optional=True),
        scopes=scopes or "",
        names_issuer=metadata.authorization_response_iss_parameter_supported is True,
        takes_client_document=metadata.client_id_metadata_document_supported is True,
        client_authentications=tuple(map(str, methods)) if methods else DEFAULT_AUTHENTICATIONS,
    )


async def fetch_www_authenticate_response(
    http: HttpClient, server_url: str, *, private: bool
) -> httpx2.Response:
    """Return the server's answer to a request without a token, which may say where its metadata is."""
    answer = await fetch_raw_oauth_answer(
        http,
        server_url,
        private=private,
        body=INITIALIZE,
        headers=(("Accept", "application/json, text/event-stream"), ("Content-Type", "application/json")),
    )
    return httpx2.Response(
        answer.status, headers={"WWW-Authenticate": answer.headers.get("www-authenticate", "")}
    )


async def fetch_resource_metadata_or_none(
    http: HttpClient, server_url: str, challenge: httpx2.Response, *, private: bool
) -> ProtectedResourceMetadata | None:
    """Return what the server says of itself (RFC 9728); None where it says nothing."""
    named = extract_resource_metadata_from_www_auth(challenge)
    addresses = build_protected_resource_metadata_discovery_urls(named, server_url)
    for answer in [
        await fetch_metadata_answer_or_none(http, url, private) for url in addresses[:MOST_ADDRESSES]
    ]:
        if answer is None:
            continue
        try:
            metadata = ProtectedResourceMetadata.model_validate_json(answer.body)
        except ValidationError:
            continue
        if not check_resource_allowed(resource_url_from_server_url(server_url), str(metadata.resource)):
            raise AuthorizationFailed(
                f"The server says that it is {str(metadata.resource)[:300]}, which is another address. Nobody signs in "
                "for another server."
            )
        if metadata.authorization_servers:
            return metadata
    return None


async def fetch_server_metadata_and_issuer(
    http: HttpClient, issuer: str | None, server_url: str, *, private: bool
) -> tuple[OAuthMetadata, str]:
    """Return what the authorization server says of itself (RFC 8414, OpenID Connect Discovery), and its issuer.

    The issuer is as it was written: the model adds a slash to some, and it is compared letter by letter later.
    """
    addresses = build_oauth_authorization_server_metadata_discovery_urls(issuer, server_url)
    for url in addresses[:MOST_ADDRESSES]:
        answer = await fetch_metadata_answer_or_none(http, url, private)
        if answer is None:
            continue
        try:
            metadata = OAuthMetadata.model_validate_json(answer.body)
        except ValidationError:
            continue
        own_issuer = str(answer.decode_json_object_body()["issuer"])
        if issuer is not None and not issuers_match(own_issuer, issuer):
            raise AuthorizationFailed(
                f"The authorization server {issuer[:300]} says that it is {own_issuer[:300]}."
            )
        return metadata, own_issuer
    raise AuthorizationFailed(
        "No authorization server was found. The server must publish its metadata as the MCP specification says; asked "
        f"were {', '.join(addresses[:MOST_ADDRESSES])[:600]}."
    )


async def fetch_metadata_answer_or_none(http: HttpClient, url: str, private: bool) -> OAuthAnswer | None:
    """Return the answer to a GET; None where there is no document."""
    answer = await fetch_raw_oauth_answer(http, url, private=private, headers=(JSON,))
    return answer if answer.status == 200 else None


def require_usable_endpoint_url(address: object, private: bool, *, optional: bool = False) -> str:
    """Return an endpoint's address. Raises AuthorizationFailed for one that people or secrets are not sent to."""
    text = "" if address is None else str(address)
    if (text or not optional) and not text.startswith(("https://", "http://") if private else "https://"):
        raise AuthorizationFailed(
            f"The authorization server's address {text[:300]!r} is no https:// address."
        )
    return text
