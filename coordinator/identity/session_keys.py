"""Keys of driven agents: who calls the MCP gateway out of a session that a runner drives."""

from __future__ import annotations

from datetime import datetime

from coordinator.identity.keys import KeyIdentity, key_refusal_reason_or_empty
from coordinator.identity.scopes import GATEWAY
from coordinator.models import ApiKey, Runner, SessionKey


def find_session_key_identity(key_hash: str, now: datetime) -> KeyIdentity | None:
    """Return who a key is; None for one that is none of a session's, that has ended, or whose runner lost its key."""
    row = SessionKey.objects.filter(key_hash=key_hash).first()
    if (
        row is None
        or row.key_hash != key_hash
        or not isinstance(row.expires_at, datetime)
        or row.expires_at <= now
        or not is_key_of_runner_valid(row.runner_id, now)
    ):
        return None
    name = f"agent of {row.session_id}"
    return KeyIdentity(-row.pk, name, frozenset({GATEWAY}), row.agent_id, row.expires_at, row.session_id)


def is_key_of_runner_valid(runner_id: str, now: datetime) -> bool:
    """Say whether the key by which a runner registered still counts: what was handed to the runner ends with it."""
    name = Runner.objects.filter(pk=runner_id).values_list("registered_by", flat=True).first()
    key = ApiKey.objects.filter(name=name).first() if name else None
    return key is not None and not key_refusal_reason_or_empty(key, now)


def find_session_key_caller_id(key_hash: str) -> int | None:
    """Return the id of a session's key, to tell callers apart with."""
    session_key_row = SessionKey.objects.filter(key_hash=key_hash).values_list("id", flat=True).first()
    return None if session_key_row is None else -session_key_row


def find_session_agent_and_key(session_id: str) -> tuple[int, str] | None:
    """Return the id of the key that the session's agent has, and as which agent it calls; None where it has none."""
    session_key_row = SessionKey.objects.filter(session_id=session_id).values_list("id", "agent_id").first()
    return None if session_key_row is None else (-session_key_row[0], session_key_row[1])
