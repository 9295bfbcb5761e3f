"""Asking authorization servers for access tokens (OAuth 2.1 as the MCP authorization specification narrows it).

Everything is asked through the gateway's HTTP client, which refuses internal addresses, follows no redirect and has a
limit of time and size. `discover_authorization_endpoints` is in `oauth_discovery`, with the SDK that only it needs.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from coordinator.mcp.protocol.http_client import HttpClient, UpstreamFailed, parse_upstream_url

ANSWER_WITHIN = 10.0  # seconds for one request, with its answer's body
MOST_ANSWER = 256 * 1024  # bytes
LONGEST_TOKEN = 16_000  # characters
LONGEST_LIFE = 10 * 365 * 24 * 3600  # seconds; what is said to be good for longer has no end
# The ways in which Signalbox shows a token endpoint who it is, the best first: with basic authentication the SDK's
# servers revoke nothing. RFC 8414: basic, where a server names none.
CLIENT_AUTHENTICATIONS = ("client_secret_post", "client_secret_basic", "none")
DEFAULT_AUTHENTICATIONS = ("client_secret_basic",)
FORM = ("Content-Type", "application/x-www-form-urlencoded")
JSON = ("Accept", "application/json")


class AuthorizationFailed(Exception):
    """An authorization server cannot be used, or its answer cannot. The text is a sentence."""


class GrantRejected(AuthorizationFailed):
    """The authorization server refused for good: a person has to sign in again. `error` is its own word."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(f"The authorization server refused: {description or error}.")
        self.error = error


@dataclass(frozen=True, slots=True)
class OAuthAnswer:
    """The answer to one request: its status, its headers by lower-case name, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def decode_json_object_body(self) -> dict[str, Any]:
        """Return the JSON object in the body. Raises AuthorizationFailed for anything else."""
        try:
            decoded = msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            decoded = None
        if not isinstance(decoded, dict):
            raise AuthorizationFailed(f"The authorization server answered {self.status} with no JSON object.")
        return decoded


@dataclass(frozen=True, slots=True)
class AuthorizationEndpoints:
    """What is known of a server's authorization server.

    `resource` is what tokens are asked for (RFC 8707). `names_issuer`: it names itself when it sends people back (RFC
    9207). `takes_client_document`: a client may be the address of its metadata. `scopes` are what to ask for.
    """

    resource: str
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    scopes: str = ""
    names_issuer: bool = False
    takes_client_document: bool = False
    client_authentications: tuple[str, ...] = DEFAULT_AUTHENTICATIONS

    @classmethod
    def from_stored(cls, stored: Any) -> AuthorizationEndpoints:
        """Return the endpoints of a row. Raises AuthorizationFailed for what is none."""
        try:
            return msgspec.convert(stored, cls)
        except msgspec.MsgspecError:
            raise AuthorizationFailed(
                "The server's sign-in settings cannot be read. An administrator must save them again."
            ) from None


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """Who Signalbox is for an authorization server."""

    client_id: str
    client_secret: str = ""
    authentication: str = "none"


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """What a token endpoint issued. `expires_in` is in seconds; None where it names no end."""

    access_token: str
    refresh_token: str = ""
    expires_in: int | None = None
    scopes: str = ""


async def fetch_raw_oauth_answer(
    http: HttpClient,
    url: str,
    *,
    private: bool,
    body: bytes | None = None,
    headers: tuple[tuple[str, str], ...] = (JSON,),
) -> OAuthAnswer:
    """Send a GET, or a POST where there is a body, and return the whole answer.

    `private` allows addresses of this network, and such without TLS. Raises AuthorizationFailed.
    """
    host = urlsplit(url).netloc
    try:
        target = parse_upstream_url(url, private=private)
        if not target.tls and not private:
            raise AuthorizationFailed(f"{host} has no https:// address, so no secret is sent there.")
        async with asyncio.timeout(ANSWER_WITHIN):
            method = "GET" if body is None else "POST"
            answer = await http.send_http_request(target, method, headers, body or b"", within=ANSWER_WITHIN)
            try:
                return OAuthAnswer(answer.status, answer.headers, await answer.read_whole_body(MOST_ANSWER))
            finally:
                answer.close()
    except TimeoutError:
        raise AuthorizationFailed(f"{host} did not answer within {ANSWER_WITHIN:.0f} seconds.") from None
    except UpstreamFailed as problem:
        raise AuthorizationFailed(f"{host} {problem}.") from None
    except ValueError:
        raise AuthorizationFailed(f"{url[:200]!r} is no address that can be asked.") from None


def create_code_verifier() -> str:
    """Return a new secret for one sign-in (PKCE, RFC 7636)."""
    return secrets.token_urlsafe(64)


def build_authorization_url(
    endpoints: AuthorizationEndpoints,
    client_id: str,
    *,
    redirect_uri: str,
    state: str,
    verifier: str,
    scopes: str,
) -> str:
    """Return the address at which a person signs in and lets Signalbox act for them."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    fields = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": endpoints.resource,
    }
    if scopes:
        fields["scope"] = scopes
    if "offline_access" in scopes.split():
        fields["prompt"] = "consent"  # OpenID Connect: without it no refresh token is issued
    separator = "&" if urlsplit(endpoints.authorization_endpoint).query else "?"
    return f"{endpoints.authorization_endpoint}{separator}{urlencode(fields)}"


def require_expected_authorization_issuer(endpoints: AuthorizationEndpoints, issuer: str) -> None:
    """Raise AuthorizationFailed where another authorization server sent the person back (RFC 9207)."""
    if (issuer or endpoints.names_issuer) and issuer != endpoints.issuer:
        raise AuthorizationFailed("The answer came from another authorization server, so it was not used.")


async def register_oauth_client(
    http: HttpClient,
    endpoints: AuthorizationEndpoints,
    *,
    redirect_uri: str,
    name: str,
    private: bool,
    grant_types: tuple[str, ...] = ("authorization_code", "refresh_token"),
) -> OAuthClient:
    """Register Signalbox as a client (RFC 7591) and return it. Raises AuthorizationFailed."""
    is_loopback = urlsplit(redirect_uri).scheme == "http"
    authentication = choose_client_authentication(endpoints, is_public=is_loopback)
    document = build_client_registration_body(redirect_uri, name, authentication, grant_types)
    if endpoints.scopes:
        document["scope"] = endpoints.scopes
    answer = await fetch_raw_oauth_answer(
        http,
        endpoints.registration_endpoint,
        private=private,
        body=msgspec.json.encode(document),
        headers=(JSON, ("Content-Type", "application/json")),
    )
    fields = answer.decode_json_object_body()
    if answer.status not in {200, 201}:
        raise AuthorizationFailed(
            f"The authorization server did not register Signalbox: {describe_oauth_error(fields)}. "
            "Register a client there by hand, and enter its id and secret."
        )
    client_id, client_secret = fields.get("client_id"), fields.get("client_secret") or ""
    authentication = fields.get("token_endpoint_auth_method") or authentication
    if (
        not is_valid_header_token(client_id)
        or not isinstance(client_secret, str)
        or len(client_secret) > LONGEST_TOKEN
    ):
        raise AuthorizationFailed("The authorization server registered Signalbox without a usable client id.")
    if authentication not in CLIENT_AUTHENTICATIONS or (authentication != "none" and not client_secret):
        raise AuthorizationFailed(
            f"The authorization server wants clients to show themselves by {str(authentication)[:100]!r}, "
            "which Signalbox cannot do."
        )
    return OAuthClient(str(client_id), client_secret, str(authentication))


def build_client_registration_body(
    redirect_uri: str, name: str, authentication: str, grant_types: tuple[str, ...]
) -> dict[str, Any]:
    """Return the registration of Signalbox as a client of an authorization server (RFC 7591)."""
    return {
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "grant_types": list(grant_types),
        "response_types": ["code"],
        "token_endpoint_auth_method": authentication,
        "application_type": "native" if urlsplit(redirect_uri).scheme == "http" else "web",
    }


def choose_client_authentication(endpoints: AuthorizationEndpoints, *, is_public: bool) -> str:
    """Return how Signalbox shows who it is. A client that is reached by http keeps no secret if it need not."""
    offered = [one for one in CLIENT_AUTHENTICATIONS if one in endpoints.client_authentications]
    if not offered:
        raise AuthorizationFailed("The authorization server supports no way in which Signalbox can sign in.")
    return "none" if is_public and "none" in offered else offered[0]


async def request_tokens(
    http: HttpClient,
    endpoints: AuthorizationEndpoints,
    client: OAuthClient,
    fields: Mapping[str, str],
    *,
    private: bool,
) -> IssuedTokens:
    """Return what the token endpoint issues for a grant, whose `fields` begin with `grant_type`.

    Raises GrantRejected where it will never be issued, AuthorizationFailed where it may be later.
    """
    answer = await post_form_for_oauth_answer(
        http, endpoints.token_endpoint, client, {**fields, "resource": endpoints.resource}, private=private
    )
    response = answer.decode_json_object_body()
    if answer.status in {400, 401} and isinstance(response.get("error"), str):
        raise GrantRejected(str(response["error"])[:100], describe_oauth_error(response))
    if answer.status != 200:
        raise AuthorizationFailed(f"The authorization server answered {answer.status}.")
    return parse_issued_tokens(response)


def parse_issued_tokens(response: Mapping[str, Any]) -> IssuedTokens:
    """Return the tokens in a token endpoint's answer (RFC 6749, 5.1). Raises AuthorizationFailed."""
    access_token, refresh_token = response.get("access_token"), response.get("refresh_token") or ""
    expires_in, scopes = response.get("expires_in"), response.get("scope")
    if str(response.get("token_type", "")).lower() != "bearer" or not is_valid_header_token(access_token):
        raise AuthorizationFailed("The authorization server issued no bearer token.")
    if not is_valid_header_token(refresh_token):
        refresh_token = ""
    try:
        seconds = None if expires_in is None or isinstance(expires_in, bool) else int(expires_in)
    except (TypeError, ValueError, OverflowError):
        seconds = None
    if seconds is not None and not 0 <= seconds <= LONGEST_LIFE:
        seconds = 0 if seconds < 0 else None
    return IssuedTokens(
        str(access_token), refresh_token, seconds, scopes[:2_000] if isinstance(scopes, str) else ""
    )


async def revoke_token(
    http: HttpClient, endpoints: AuthorizationEndpoints, client: OAuthClient, token: str, *, private: bool
) -> None:
    """Ask the authorization server to forget a token (RFC 7009). Raises AuthorizationFailed."""
    answer = await post_form_for_oauth_answer(
        http, endpoints.revocation_endpoint, client, {"token": token}, private=private
    )
    if answer.status != 200:
        raise AuthorizationFailed(
            f"The authorization server answered {answer.status} and may keep the token."
        )


async def post_form_for_oauth_answer(
    http: HttpClient, url: str, client: OAuthClient, fields: Mapping[str, str], *, private: bool
) -> OAuthAnswer:
    form, headers = {**fields, "client_id": client.client_id}, [JSON, FORM]
    if client.authentication == "client_secret_basic":
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        headers.append(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    elif client.authentication == "client_secret_post":
        form["client_secret"] = client.client_secret
    return await fetch_raw_oauth_answer(
        http, url, private=private, body=urlencode(form).encode(), headers=tuple(headers)
    )


def is_valid_header_token(text: Any) -> bool:
    """Return whether a text can be a token in a header: printable ASCII, neither empty nor too long."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_TOKEN and text.isascii() and text.isprintable()


def describe_oauth_error(response: Mapping[str, Any]) -> str:
    """Return what an error says, in one line."""
    text = response.get("error_description") or response.get("error") or "no reason given"
    return " ".join(str(text).split()).rstrip(".")[:300]
