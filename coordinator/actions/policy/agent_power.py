"""An agent's power switch, the password that may guard it, and the heartbeat that reports its presence.

The column holds a plain PHC string (`$argon2id$v=19$m=19456,t=2,p=1$…`), as the programs that share the schema write
it, with their parameters.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.people.attempts import AttemptLimit
from coordinator.errors import BadRequest, Conflict, Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import Agent

LONGEST_PASSWORD = 1000
# An agent that waits for messages is there; its row is written at most this often for that.
SEEN_EVERY = timedelta(seconds=30)
REFUSED = AttemptLimit(
    "AGENT_POWER_REFUSED",
    "wrong password from {source}",
    tries=5,
    window=timedelta(minutes=10),
    refusal="Too many wrong passwords for this agent. Try again in a few minutes.",
)
hasher = PasswordHasher(
    time_cost=2, memory_cost=19_456, parallelism=1, hash_len=32, salt_len=16, type=Type.ID
)


def set_agent_enabled(
    agent_id: str, on: bool, *, actor: Actor, password: str | None = None, now: datetime
) -> Agent:
    """Switch an agent on (it then counts as seen just now) or off; one that is so already is left alone.

    Raises NotFound, BadRequest where the switch's password is missing, Forbidden for a wrong one, TooMany after
    some of those, Conflict where the stored hash cannot be read.
    """
    stored = require_agent(agent_id).power_password_hash
    if stored:  # verified before the transaction: it takes its time, and a refusal must stay in the audit log
        verify_power_password(agent_id, stored, password, actor, now)
    with transaction.atomic():
        row = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()
        if row is None or row.power_password_hash != stored:
            raise Conflict(
                f"The password of {agent_id} has just been changed, so nothing was switched. Try "
                "again with the new one."
            )
        if bool(row.enabled) == on:
            return row
        row.enabled = on
        if on:
            row.last_seen = now
        row.save(update_fields=["enabled", "last_seen"])
        event = "AGENT_POWERED_ON" if on else "AGENT_POWERED_OFF"
        changes = {"before": {"enabled": not on}, "after": {"enabled": on}}
        audit.record_audit_entry(
            event, actor=actor, target=agent_id, result="success", metadata=changes, now=now
        )
    return row


def require_agent(agent_id: str) -> Agent:
    row = Agent.objects.filter(pk=agent_id).first()
    if row is None:
        raise NotFound(f"There is no agent {agent_id!r}.")
    return row


def verify_power_password(
    agent_id: str, stored: str, password: str | None, actor: Actor, now: datetime
) -> None:
    if not password:
        raise BadRequest(f"Password required: a password protects the power switch of {agent_id}.")
    source = f"{actor} for {agent_id}"
    REFUSED.require_below_limit(source, now)
    try:
        hasher.verify(stored, password)
    except VerifyMismatchError:
        REFUSED.record_refusal_for_limit(source, actor=actor, target=agent_id, now=now)
        raise Forbidden("Wrong password for this agent. The attempt is in the audit log.") from None
    except (VerificationError, InvalidHashError):
        raise Conflict(
            f"The stored password of {agent_id} cannot be read. An admin can remove it or set a new one."
        ) from None


def set_power_switch_password(agent_id: str, password: str | None, *, actor: Actor, now: datetime) -> Agent:
    """Guard the power switch with a password, or with None take the guard away.

    Raises NotFound, UnprocessableRequest.
    """
    if password is not None and not 1 <= len(password) <= LONGEST_PASSWORD:
        raise UnprocessableRequest(f"A password must have 1 to {LONGEST_PASSWORD} characters.")
    new_hash = hasher.hash(password) if password is not None else None
    with transaction.atomic():
        row = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()
        if row is None:
            raise NotFound(f"There is no agent {agent_id!r}.")
        had, row.power_password_hash = bool(row.power_password_hash), new_hash
        if not had and new_hash is None:
            return row
        row.save(update_fields=["power_password_hash"])
        event = "AGENT_PASSWORD_REMOVED" if new_hash is None else "AGENT_PASSWORD_SET"
        changes = {"before": {"guarded": had}, "after": {"guarded": new_hash is not None}}
        audit.record_audit_entry(
            event, actor=actor, target=agent_id, result="success", metadata=changes, now=now
        )
    return row


def record_agent_heartbeat(agent_id: str, now: datetime) -> Agent:
    """Note that an agent is there and return it: its answer says whether it may work. Raises NotFound."""
    if not Agent.objects.filter(pk=agent_id).update(last_seen=now):
        raise NotFound(f"There is no agent {agent_id!r}.")
    return require_agent(agent_id)


def refresh_agent_last_seen(agent_id: str, now: datetime) -> None:
    """Note, not too often, that an agent gave a sign of life by asking for something."""
    Agent.objects.filter(pk=agent_id, last_seen__lt=now - SEEN_EVERY).update(last_seen=now)
