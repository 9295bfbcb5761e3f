"""API keys: created, shown once, checked, revoked. Only their SHA-256 is stored.

A key is 256 random bits, so a plain hash of it cannot be guessed back; a slow hash would only make every request slow.
Looking it up by hash also leaks nothing through timing: an attacker cannot choose hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import IntegrityError, OperationalError, transaction

from coordinator.actions.agents import deleted_agents
from coordinator.actions.audit import audit
from coordinator.actions.people.attempts import AttemptLimit, normalize_caller_network
from coordinator.engine import locks
from coordinator.errors import Conflict, NotFound, TooManyRequests, Unauthorized, UnprocessableRequest
from coordinator.identity import session_keys
from coordinator.identity.actors import Actor, system_actor
from coordinator.identity.keys import (
    UNKNOWN,
    KeyEnded,
    KeyIdentity,
    accepts_keys_without_agent,
    key_refusal_reason_or_empty,
)
from coordinator.identity.scopes import SCOPES, SPEAK_AS_AGENTS
from coordinator.models import ApiKey, RevokedKey

log = logging.getLogger(__name__)

PREFIX = "sbx_"
SHOWN = 12  # characters of a key that lists may show
USE_NOTED_EVERY = timedelta(minutes=1)
USE_WAITS_MS = 200  # for the database's one writer: the caller waits meanwhile, and has seconds in all
# A key cannot be guessed; the limit keeps a program with a wrong one from filling the audit log.
REFUSED = AttemptLimit(
    "API_KEY_REFUSED",
    "from {source}",
    tries=60,
    window=timedelta(minutes=1),
    refusal="Too many requests with an invalid key. Check the key and try again in a few minutes.",
)
OUT_OF_SCOPE = AttemptLimit(
    "API_KEY_OUT_OF_SCOPE",
    "by key {source}",
    tries=60,
    window=timedelta(minutes=1),
    refusal="Not within its scopes.",
)


def hash_api_key(raw: str) -> str:
    """Return the hex SHA-256 under which a key is kept."""
    return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()


def generate_api_key() -> str:
    """Return a new key, which nobody has yet."""
    return PREFIX + secrets.token_urlsafe(32)


def issue_api_key(
    *,
    name: str,
    scopes: Iterable[str],
    actor: Actor,
    now: datetime,
    agent_id: str | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Make a key and return its row and the key itself, which is never to be had again.

    Raises UnprocessableRequest for an empty name, no or unknown scopes, an expiry in the past, or the scope
    `agent` without an agent where such keys are refused; Conflict for a name in use and for the id of a
    deleted agent that something names still.
    """
    name, wanted_scopes = name.strip(), sorted(set(scopes))
    if not name:
        raise UnprocessableRequest("A key needs a name that says who uses it.")
    if not wanted_scopes or set(wanted_scopes) - set(SCOPES):
        raise UnprocessableRequest(f"Choose from these scopes: {', '.join(SCOPES)}.")
    if expires_at is not None and expires_at <= now:
        raise UnprocessableRequest("The expiry date is in the past.")
    if not agent_id and SPEAK_AS_AGENTS & set(wanted_scopes) and not accepts_keys_without_agent():
        raise UnprocessableRequest(
            "A key of scope agent must be bound to an agent. Choose one, or make one for this key."
        )
    deleted_agents.require_no_deleted_agent_references(agent_id)
    raw = generate_api_key()
    try:
        with transaction.atomic():
            row = ApiKey.objects.create(
                name=name,
                prefix=raw[:SHOWN],
                key_hash=hash_api_key(raw),
                scopes=wanted_scopes,
                agent_id=agent_id or None,
                created_at=now,
                created_by=str(actor),
                expires_at=expires_at,
            )
            audit.record_audit_entry(
                "API_KEY_CREATED",
                actor=actor,
                target=name,
                result="success",
                metadata={"scopes": wanted_scopes, "agent_id": agent_id, "prefix": row.prefix},
                now=now,
            )
    except IntegrityError:
        raise Conflict(f"A key named {name!r} already exists.") from None
    return row, raw


def authenticate_api_key(raw: str, now: datetime, *, source: str = "unknown") -> KeyIdentity:
    """Return who `raw` is. Raises Unauthorized for an unknown, expired or revoked key.

    A refusal is audited with `source`, the caller's address; TooMany after too many of them. A use is noted,
    at most once a minute per key, so that reads stay reads.
    """
    key_hash = hash_api_key(raw)
    row = ApiKey.objects.filter(key_hash=key_hash).first()
    if row is not None and not hmac.compare_digest(row.key_hash, key_hash):  # a collation that is not exact
        row = None
    if row is None and (session := session_keys.find_session_key_identity(key_hash, now)) is not None:
        return session
    if row is None:
        raise audit_and_build_key_error(UNKNOWN, None, source, now)
    if key_problem := key_refusal_reason_or_empty(row, now):
        raise audit_and_build_key_error(key_problem, row, source, now)
    record_key_use(row, now)
    return build_key_identity(row)


def require_valid_key_identity(key_id: int, now: datetime) -> KeyIdentity:
    """Return who the key with this id is. Raises Unauthorized where it is not valid any more."""
    row = ApiKey.objects.filter(pk=key_id).first()
    if row is None:
        raise Unauthorized(UNKNOWN)
    if key_problem := key_refusal_reason_or_empty(row, now):
        raise Unauthorized(key_problem)
    return build_key_identity(row)


def build_key_identity(row: ApiKey) -> KeyIdentity:
    several = None if row.agent_id is not None else row.bound_agent_ids_or_none
    return KeyIdentity(
        row.id, row.name, frozenset(row.scope_names), row.agent_id, row.expires_at, agents=several
    )


def find_api_key_id(raw: str) -> int | None:
    """Return the id of a valid key, to distinguish callers; nothing is recorded or refused."""
    key_hash = hash_api_key(raw)
    if RevokedKey.objects.filter(key_hash=key_hash).exists():
        return None
    api_key_row = (
        ApiKey.objects.filter(key_hash=key_hash, revoked_at=None).values_list("id", flat=True).first()
    )
    return session_keys.find_session_key_caller_id(key_hash) if api_key_row is None else api_key_row


def audit_and_build_key_error(reason: str, row: ApiKey | None, source: str, now: datetime) -> Unauthorized:
    """Audit a refused key, by name where it is known, and return what to raise.

    Raises TooManyRequests for an unknown one.
    """
    source = normalize_caller_network(source)
    try:
        REFUSED.require_below_limit(source, now)
        REFUSED.record_refusal_for_limit(
            source,
            actor=system_actor("api"),
            target=row.name if row else None,
            metadata={"why": reason},
            now=now,
        )
    except TooManyRequests:
        if row is None:
            raise
    return KeyEnded(reason) if row else Unauthorized(reason)


def record_out_of_scope_use(
    identity: KeyIdentity, wanted_scopes: Iterable[str], attempt: str, now: datetime
) -> None:
    """Audit that a key was used for something it may not do (`attempt`); beyond the limit, silently."""
    if OUT_OF_SCOPE.seconds_until_retry(identity.name, now) == 0:
        OUT_OF_SCOPE.record_refusal_for_limit(
            identity.name,
            actor=identity.caller_actor,
            target=identity.name,
            metadata={"what": attempt, "scopes": sorted(identity.scopes), "needed": sorted(wanted_scopes)},
            now=now,
        )


def record_key_use(row: ApiKey, now: datetime) -> None:
    """Write down that the key was used, unless that was done within the last minute.

    A database that cannot be written just now keeps nobody out: the next use is noted instead.
    """
    last = row.last_used_at
    if isinstance(last, datetime) and now - last < USE_NOTED_EVERY:
        return
    try:
        with locks.shorten_busy_timeout_during_block(USE_WAITS_MS), transaction.atomic():
            ApiKey.objects.filter(pk=row.pk).update(last_used_at=now)
    except OperationalError as problem:
        log.warning("The last use of the key %s could not be recorded: %s", row.name, str(problem).strip())


def invalidate_api_key(key_id: int, *, actor: Actor, now: datetime, reason: str | None = None) -> ApiKey:
    """Refuse a key from now on, for ever. Raises NotFound, or Conflict where it is revoked already."""
    with transaction.atomic():
        changed = ApiKey.objects.filter(pk=key_id, revoked_at__isnull=True).update(revoked_at=now)
        row = ApiKey.objects.filter(pk=key_id).first()
        if row is None:
            raise NotFound("No such key.")
        if not changed:
            raise Conflict(f"The key {row.name!r} is already revoked.")
        RevokedKey.objects.get_or_create(key_hash=row.key_hash, defaults={"revoked_at": now})
        audit.record_audit_entry(
            "API_KEY_REVOKED", actor=actor, target=row.name, result="success", reason=reason, now=now
        )
    return row


def unbind_agent_or_revoke_keys(agent_id: str, *, actor: Actor, now: datetime) -> None:
    """Take a deleted agent from the keys that are bound to it among others; revoke those that were left with none."""
    with transaction.atomic():
        for row in ApiKey.objects.select_for_update().filter(agent_id=None, revoked_at=None):
            bound = row.bound_agent_ids_or_none or frozenset()
            if agent_id not in bound:
                continue
            row.agent_ids = sorted(bound - {agent_id})
            row.save(update_fields=["agent_ids"])
            reason = f"The agent {agent_id} was deleted."
            if not row.agent_ids:
                invalidate_api_key(row.pk, actor=actor, now=now, reason=reason)
                continue
            metadata = {"before": sorted(bound), "after": row.agent_ids}
            audit.record_audit_entry(
                "API_KEY_BOUND",
                actor=actor,
                target=row.name,
                result="success",
                reason=reason,
                metadata=metadata,
                now=now,
            )
