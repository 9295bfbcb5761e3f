"""An MCP server at which people sign in, with its own authorization server: both are the official package's.

The authorization server asks nobody: who comes to it is signed in as `person`.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    TokenVerifier,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from tests.gateway.example_server import serving
from tests.served import free_port

SCOPE = "tools"


@dataclass
class SignedInServer:
    """What the two servers know; `life` is for how many seconds an access token is said to be good."""

    url: str = ""
    person: str = "ada"
    life: int = 3600
    registers: bool = True
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    access: dict[str, AccessToken] = field(default_factory=dict)
    refresh: dict[str, RefreshToken] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)


class MemoryProvider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The authorization server's memory."""

    def __init__(self, state: SignedInServer) -> None:
        self.state = state

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.state.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.state.asked["register"] += 1
        assert client_info.client_id
        self.state.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        assert client.client_id
        code = secrets.token_urlsafe(24)
        self.state.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [SCOPE],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=self.state.person,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.state.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        self.state.asked["code"] += 1
        del self.state.codes[authorization_code.code]
        return self.issue(
            authorization_code.client_id, authorization_code.scopes, authorization_code.subject,
            authorization_code.resource,
        )  # fmt: skip

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.state.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.state.asked["refresh"] += 1
        if self.state.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant", "used twice")
        return self.issue(
            refresh_token.client_id, refresh_token.scopes, refresh_token.subject, refresh_token.resource
        )

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.state.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.state.asked["revoke"] += 1
        self.state.access.pop(token.token, None)
        self.state.refresh.pop(token.token, None)

    def issue(
        self, client_id: str, scopes: list[str], subject: str | None, resource: str | None
    ) -> OAuthToken:
        """Return new tokens; the server takes them whatever is said of their end."""
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        told: dict[str, Any] = {
            "client_id": client_id, "scopes": scopes, "subject": subject, "resource": resource,
        }  # fmt: skip
        self.state.access[access] = AccessToken(token=access, **told)
        self.state.refresh[refresh] = RefreshToken(token=refresh, **told)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.state.life, scope=" ".join(scopes)
        )


def build(state: SignedInServer) -> MCPServer:
    """Return the server; `whoami` returns the person whose token came with the call."""
    base = state.url.removesuffix("/mcp")
    server = MCPServer(
        "signed-in",
        auth_server_provider=MemoryProvider(state),
        auth=AuthSettings(
            issuer_url=base,
            resource_server_url=state.url,
            validate_token_resource=True,
            required_scopes=[SCOPE],
            client_registration_options=ClientRegistrationOptions(
                enabled=state.registers, valid_scopes=[SCOPE], default_scopes=[SCOPE]
            ),
            revocation_options=RevocationOptions(enabled=True),
        ),
    )

    @server.tool()
    def whoami() -> str:
        """Return who is signed in."""
        token = get_access_token()
        state.asked["whoami"] += 1
        return f"{token.subject if token else 'nobody'}"

    return server


@contextlib.contextmanager
def protected_by(verifier: TokenVerifier, issuer: str, *, port: int, asked: Counter[str]) -> Iterator[str]:
    """Serve the tool behind another authorization server; yields its address."""
    url = f"http://127.0.0.1:{port}/mcp"
    settings = AuthSettings(
        issuer_url=issuer, resource_server_url=url, validate_token_resource=True, required_scopes=[SCOPE]
    )
    server = MCPServer("signed-in", token_verifier=verifier, auth=settings)

    @server.tool()
    def whoami() -> str:
        """Return who is signed in."""
        token = get_access_token()
        asked["whoami"] += 1
        return f"{token.subject if token else 'nobody'}"

    with serving(server.streamable_http_app(), port=port):
        yield url


@contextlib.contextmanager
def running(**known: Any) -> Iterator[SignedInServer]:
    """Serve both in a thread for the length of the block."""
    port = free_port()
    state = SignedInServer(url=f"http://127.0.0.1:{port}/mcp", **known)
    with serving(build(state).streamable_http_app(), port=port):
        yield state
