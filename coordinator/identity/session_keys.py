"""Keys of driven agents: who calls the MCP gateway out of a session that a runner drives."""

from __future__ import annotations

from datetime import datetime

from coordinator.identity.keys import GATEWAY, KeyIdentity
from coordinator.models import SessionKey


def find(key_hash: str, now: datetime) -> KeyIdentity | None:
    """Return who a key is; None for one that is none of a session's, or that has ended."""
    row = SessionKey.objects.filter(key_hash=key_hash).first()
    if (
        row is None
        or row.key_hash != key_hash
        or not isinstance(row.expires_at, datetime)
        or row.expires_at <= now
    ):
        return None
    name = f"agent of {row.session_id}"
    return KeyIdentity(-row.pk, name, frozenset({GATEWAY}), row.agent_id, row.expires_at, row.session_id)


def id_of(key_hash: str) -> int | None:
    """Return the id of a session's key, to tell callers apart with."""
    found = SessionKey.objects.filter(key_hash=key_hash).values_list("id", flat=True).first()
    return None if found is None else -found


def of_session(session_id: str) -> tuple[int, str] | None:
    """Return the id of the key that the session's agent has, and as which agent it calls; None where it has none."""
    found = SessionKey.objects.filter(session_id=session_id).values_list("id", "agent_id").first()
    return None if found is None else (-found[0], found[1])
