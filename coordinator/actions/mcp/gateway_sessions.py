"""Sessions of MCP clients at the gateway, and the upstream sessions within them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from coordinator.errors import NotFound
from coordinator.models import GatewayLink, GatewaySession
from coordinator.secrets.digests import keyed_digest
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.secrets.sealing import seal_for_purpose, unseal_for_purpose

SEALED_AS = "mcp-gateway-session"
NOTE_EVERY = timedelta(hours=1)  # how exactly it is known when a session was used last
USED_WITHIN = timedelta(days=1)  # for which a session that is not used counts as going on
MAX_CLIENT_INFO_CHARACTERS = 20_000  # characters of what a client says of itself, as JSON


@dataclass(frozen=True, slots=True)
class StoredUpstreamSession:
    """A server's own session: its id there (None where it has none) and the version that it speaks."""

    upstream_session: str | None
    protocol_version: str


@dataclass(frozen=True, slots=True)
class GatewayClient:
    """A client's session as a request needs it."""

    session_id: str
    endpoint: str
    key_id: int
    agent_id: str
    protocol_version: str
    client: dict[str, Any] = field(default_factory=dict)
    capabilities: dict[str, Any] = field(default_factory=dict)
    links: dict[str, StoredUpstreamSession] = field(default_factory=dict)


def create_gateway_session(
    endpoint: str, *, key_id: int, agent_id: str, version: str, client: Any, capabilities: Any, now: datetime
) -> GatewayClient:
    """Make a session. What the client says of itself is kept as far as it is an object of a sensible size."""
    row = GatewaySession.objects.create(
        session_id=f"gws-{secrets.token_urlsafe(24)}",
        door=endpoint,
        key_id=key_id,
        agent_id=agent_id,
        protocol_version=version[:40],
        client=clean_client_info(client),
        capabilities=clean_client_info(capabilities),
        created_at=now,
        used_at=now,
    )
    return build_gateway_client(row, {})


def clean_client_info(value: Any) -> dict[str, Any]:
    return (
        mask_secrets_in_value(value)
        if isinstance(value, dict) and len(str(value)) <= MAX_CLIENT_INFO_CHARACTERS
        else {}
    )


def get_or_create_default_session(
    *, key_id: int, agent_id: str, version: str, now: datetime
) -> GatewayClient:
    """Return the one session of a caller whose client has none, at the endpoint of all servers."""
    name = f"gws-{keyed_digest('gateway session', key_id, agent_id)[:40]}"
    GatewaySession.objects.get_or_create(
        session_id=name,
        defaults={
            "door": "",
            "key_id": key_id,
            "agent_id": agent_id,
            "protocol_version": version,
            "client": {},
            "capabilities": {},
            "created_at": now,
            "used_at": now,
        },
    )
    return require_and_touch_gateway_session(name, endpoint="", key_id=key_id, agent_id=agent_id, now=now)


def has_live_gateway_session(agent_id: str | None, key_id: int | None, now: datetime) -> bool:
    """Return whether a caller has a session now: one of this key, or of this agent where the key is not known."""
    key_filter = {"agent_id": agent_id or ""} if key_id is None else {"key_id": key_id}
    return GatewaySession.objects.filter(used_at__gt=now - USED_WITHIN, **key_filter).exists()


def require_and_touch_gateway_session(
    session_id: str, *, endpoint: str, key_id: int, agent_id: str, now: datetime
) -> GatewayClient:
    """Return the session of this caller at this endpoint. Raises NotFound: the client begins a new one then."""
    row = GatewaySession.objects.filter(
        pk=session_id, door=endpoint, key_id=key_id, agent_id=agent_id
    ).first()
    if row is None:
        raise NotFound("This session is not known, or is over. Begin a new one with initialize.")
    if isinstance(row.used_at, datetime) and row.used_at < now - NOTE_EVERY:
        GatewaySession.objects.filter(pk=session_id).update(used_at=now)
    links = {
        link.server_id: StoredUpstreamSession(
            decrypt_upstream_session_id(link.upstream_session), link.protocol_version
        )
        for link in GatewayLink.objects.filter(session_id=session_id)
    }
    return build_gateway_client(row, links)


def decrypt_upstream_session_id(sealed: str | None) -> str | None:
    if sealed is None:
        return None
    try:
        return unseal_for_purpose(SEALED_AS, sealed.encode()).decode()
    except ValueError:
        raise NotFound(
            "This session is over: the server's secret key has changed. Begin a new one."
        ) from None


def build_gateway_client(row: GatewaySession, links: dict[str, StoredUpstreamSession]) -> GatewayClient:
    client_facts = [value if isinstance(value, dict) else {} for value in (row.client, row.capabilities)]
    return GatewayClient(
        row.session_id,
        row.door,
        row.key_id,
        row.agent_id,
        row.protocol_version,
        client_facts[0],
        client_facts[1],
        links,
    )


def save_upstream_session(
    session_id: str, server_id: str, upstream_session: str | None, version: str
) -> None:
    """Note the session that a server gave, in place of an earlier one."""
    sealed = (
        None if upstream_session is None else seal_for_purpose(SEALED_AS, upstream_session.encode()).decode()
    )
    GatewayLink.objects.update_or_create(
        session_id=session_id,
        server_id=server_id,
        defaults={"upstream_session": sealed, "protocol_version": version[:40]},
    )


def delete_upstream_session(session_id: str, server_id: str) -> None:
    """Forget a server's session that it does not know any more."""
    GatewayLink.objects.filter(session_id=session_id, server_id=server_id).delete()


def end_gateway_session(session_id: str) -> None:
    """End a client's session."""
    with transaction.atomic():
        GatewayLink.objects.filter(session_id=session_id).delete()
        GatewaySession.objects.filter(pk=session_id).delete()
