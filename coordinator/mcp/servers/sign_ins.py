"""The choice of the access token for an agent's request to a server with a sign-in."""

from __future__ import annotations

from django.contrib.auth.models import User

from coordinator.errors import SignalboxError
from coordinator.models import McpAgentPerson, McpAuthorization
from coordinator.models.upstream_sign_ins import SignInMode
from coordinator.secrets import keyring


class SignInNeeded(SignalboxError):
    """A person has to do something before the server can be used. The text says who, and what."""

    status = 503


def resolve_token_owner_id(
    authorization: McpAuthorization, agent_id: str, person: int | None = None
) -> int | None:
    """Return the person whose token a request carries; None for the one that all share.

    A request is an agent's, or that of a `person`, whose own it is.

    Raises SignInNeeded where nobody is chosen for the agent, or who was chosen is not active any more.
    """
    if authorization.mode in {SignInMode.SHARED, SignInMode.CLIENT}:
        return None
    if person is not None:
        return person
    row = McpAgentPerson.objects.filter(pk=agent_id).first()
    if row is None:
        raise SignInNeeded(
            f"People sign in at the server {authorization.server_id} themselves, and no person is chosen for the agent "
            f"{agent_id}. An administrator chooses one on the server's page."
        )
    if not User.objects.filter(pk=row.user_id, is_active=True).exists():
        raise SignInNeeded(
            f"The person of the agent {agent_id} has no active account any more. An administrator chooses another one "
            f"on the page of the server {authorization.server_id}."
        )
    return row.user_id


def upstream_token_seal_purpose(server_id: str, user_id: int | None, name: str) -> str:
    """Return what a token, or the client's secret, is sealed for: it opens in the place of no other."""
    return "\x1f".join(("mcp-oauth", server_id, "" if user_id is None else str(user_id), name))


def seal_token_or_none(server_id: str, user_id: int | None, name: str, token: str) -> str | None:
    """Return a token as it is stored; None for an empty one. Raises SignInNeeded without the keys to seal it."""
    if not token:
        return None
    try:
        return keyring.seal_text_with_keyring(upstream_token_seal_purpose(server_id, user_id, name), token)
    except keyring.KeyringUnusable as problem:
        raise SignInNeeded(f"Nothing can be kept of a sign-in at {server_id}: {problem}") from None


def unseal_token(server_id: str, user_id: int | None, name: str, sealed: str | None) -> str:
    """Return a stored token, empty where none is stored. Raises SignInNeeded for one that cannot be opened."""
    if not sealed:
        return ""
    try:
        return keyring.unseal_text_with_keyring(upstream_token_seal_purpose(server_id, user_id, name), sealed)
    except keyring.KeyringUnusable as problem:
        raise SignInNeeded(f"The sign-in at the server {server_id} cannot be read: {problem}") from None


def reseal_token_with_newest_key(
    server_id: str, user_id: int | None, name: str, sealed: str | None
) -> str | None:
    """Return a stored token sealed with the newest key; the same text where it is so already."""
    if not sealed or keyring.key_id_of_sealed_text(sealed) == keyring.load_newest_key_id():
        return sealed
    return seal_token_or_none(server_id, user_id, name, unseal_token(server_id, user_id, name, sealed))
