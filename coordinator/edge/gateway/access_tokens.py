"""Lookup and renewal of access tokens for requests to MCP servers with a sign-in."""

from __future__ import annotations

import asyncio

from django.utils import timezone

from coordinator.actions.mcp import mcp_sign_ins
from coordinator.actions.mcp.mcp_sign_ins import StoredToken, TokenRenewal
from coordinator.errors import SignalboxError
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.protocol import oauth
from coordinator.mcp.protocol.http_client import HttpClient, RequestNotSent, UpstreamAnswer, UpstreamFailed
from coordinator.mcp.protocol.oauth import AuthorizationFailed

RENEWED_WITHIN = 30.0  # seconds for which a request waits until another worker has a new token
LOOKED_AFTER = 0.1  # seconds


class AccessTokens:
    """One a process. It keeps nothing: what was issued, renewed or ended anywhere holds for the next request."""

    def __init__(self, threads: EdgeThreads, http: HttpClient) -> None:
        self._threads = threads
        self._http = http

    async def get_or_renew_access_token(
        self, server: UpstreamServer, agent_id: str, rejected: str = "", *, person: int | None = None
    ) -> StoredToken:
        """Return the token for a request of an agent or a person. `rejected` is one that the server did not take.

        Raises UpstreamFailed where a person has to sign in, or no token can be had now: nothing was sent.
        """
        try:
            async with asyncio.timeout(RENEWED_WITHIN):
                while True:
                    token_row = await self._threads.run_in_thread(
                        mcp_sign_ins.get_token_or_claim_renewal,
                        server.name,
                        agent_id,
                        timezone.now(),
                        rejected,
                        person,
                    )
                    if isinstance(token_row, StoredToken):
                        return token_row
                    if token_row is not None:
                        return await self.renew_access_token(token_row)
                    await asyncio.sleep(LOOKED_AFTER)
        except TimeoutError:
            raise UpstreamFailed("waits for a new access token, which takes too long") from None
        except (SignalboxError, AuthorizationFailed) as problem:
            raise RequestNotSent(describe_token_failure(problem)) from None

    async def renew_access_token(self, renewal: TokenRenewal) -> StoredToken:
        """Ask for a new token and keep it. It is kept even if who needs it has gone meanwhile."""
        return await asyncio.shield(asyncio.ensure_future(self.request_and_store_tokens(renewal)))

    async def request_and_store_tokens(self, renewal: TokenRenewal) -> StoredToken:
        issued: oauth.IssuedTokens | AuthorizationFailed
        try:
            issued = await oauth.request_tokens(
                self._http, renewal.endpoints, renewal.client, renewal.fields, private=renewal.private
            )
        except AuthorizationFailed as problem:
            issued = problem
        return await self._threads.run_in_thread(
            mcp_sign_ins.finish_renewal_and_require_token, renewal, issued, timezone.now()
        )

    async def record_token_requiring_sign_in(self, token: StoredToken) -> None:
        """Note that a server does not take a token that was just issued."""
        await self._threads.run_in_thread(
            mcp_sign_ins.record_required_sign_in,
            token.token_id,
            "The server rejected a new access token.",
            timezone.now(),
        )

    async def record_missing_scope_if_reported(self, token: StoredToken, answer: UpstreamAnswer) -> None:
        """Note that a server wants more than the token's scopes allow, so that a person is asked for more."""
        challenge = answer.headers.get("www-authenticate", "")
        if "insufficient_scope" in challenge:
            await self._threads.run_in_thread(
                mcp_sign_ins.record_required_sign_in,
                token.token_id,
                "The server wants more than this sign-in allows.",
                timezone.now(),
                scopes=challenge_scope_or_empty(challenge),
            )


def challenge_scope_or_empty(challenge: str) -> str:
    """Return the scopes that a WWW-Authenticate header asks for, empty where it names none."""
    _, separator, rest = challenge.partition('scope="')
    return rest.partition('"')[0][:1_000] if separator else ""


def describe_token_failure(problem: SignalboxError | AuthorizationFailed) -> str:
    """Return why no token is to be had, as the end of "The server …"."""
    text = str(problem.detail if isinstance(problem, SignalboxError) else problem).rstrip(".")
    return text if text.startswith("needs a sign-in") else f"cannot be used: {text}"
