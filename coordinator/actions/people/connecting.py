"""Codes that connect a machine: made by an administrator, exchanged there once for a key of scope `agent`.

A code is typed or pasted, so it is short: 60 random bits, which nobody guesses in its ten minutes. It is stored as a
hash under the secret key, so the database alone does not let anyone find it by trying.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.crypto import salted_hmac

from coordinator.actions.agents import deleted_agents
from coordinator.actions.audit import audit
from coordinator.actions.people import key_binding, keys
from coordinator.actions.people.attempts import AttemptLimit, normalize_caller_network
from coordinator.errors import Conflict, Forbidden, UnprocessableRequest
from coordinator.identity.actors import person_actor, system_actor
from coordinator.identity.roles import ADMIN, has_role
from coordinator.lib.identifiers import slugify_name_as_agent_id
from coordinator.models import Agent, ApiKey, AuditLog, ConnectCode

SIGNS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: none is taken for another
LENGTH, GROUP = 12, 4
LASTS = timedelta(minutes=10)
EXPIRED_CODE_RETENTION = timedelta(days=1)  # so that the page can say what became of a code
LONGEST_HOST = 255
REFUSED = AttemptLimit(
    "CONNECT_CODE_REFUSED",
    "from {source}",
    tries=20,
    window=timedelta(minutes=1),
    refusal="Too many codes that are not valid. Try again in a minute.",
)
NOT_VALID = (
    "This connect code is not valid: it was used, is older than ten minutes, or was mistyped. Make a new one. If you"
    " have not used it, somebody else may have: revoke its key on the page API keys."
)


def issue_connect_code(
    *, key_name: str, user: User, now: datetime, agent_id: str | None = None
) -> tuple[ConnectCode, str]:
    """Make a code for a key of that name and return its row and the code itself, which is never to be had again.

    The key is bound to the agent; without one, to a new agent that is called like the key, or to the one that an
    earlier code of theirs made which nobody used. That code is void then. Raises
    UnprocessableRequest without a name or for an unknown agent, Conflict for a name in use, Forbidden for who
    is no admin.
    """
    key_name = key_name.strip()
    require_connect_admin(user)
    if not key_name:
        raise UnprocessableRequest("A key needs a name that says which machine uses it.")
    if agent_id and not Agent.objects.filter(pk=agent_id).exists():
        raise UnprocessableRequest("There is no such agent.")
    deleted_agents.require_no_deleted_agent_references(agent_id)
    if ApiKey.objects.filter(name=key_name).exists():
        raise Conflict(f"A key named {key_name!r} already exists.")
    code = "".join(secrets.choice(SIGNS) for _ in range(LENGTH))
    with transaction.atomic():
        if not agent_id:
            agent_id = (
                void_codes_return_agent_id(key_name, user, now)
                or key_binding.create_agent_named_like_key(key_name, actor=person_actor(user), now=now).pk
            )
        ConnectCode.objects.filter(expires_at__lt=now - EXPIRED_CODE_RETENTION).delete()
        row = ConnectCode.objects.create(
            code_hash=hash_connect_code(code),
            key_name=key_name,
            agent_id=agent_id,
            made_by=user.pk,
            created_at=now,
            expires_at=now + LASTS,
        )
        audit.record_audit_entry(
            "CONNECT_CODE_CREATED",
            actor=person_actor(user),
            target=key_name,
            result="success",
            metadata={"agent_id": agent_id},
            now=now,
        )
    return row, "-".join(code[at : at + GROUP] for at in range(0, LENGTH, GROUP))


def void_codes_return_agent_id(key_name: str, user: User, now: datetime) -> str | None:
    """Void the person's unused codes of that name, and return the agent that was made with the first of them.

    None where there is no such code, or its agent is gone or has a key by now. Nothing is voided then.
    """
    agent_id = slugify_name_as_agent_id(key_name)
    codes = ConnectCode.objects.filter(key_name=key_name, made_by=user.pk, used_at=None)
    created = AuditLog.objects.filter(
        event_type="AGENT_CREATED", target_id=agent_id, timestamp__in=[code.created_at for code in codes]
    )
    is_there = Agent.objects.filter(pk=agent_id).exists()
    if not is_there or not created.exists() or ApiKey.objects.filter(agent_id=agent_id).exists():
        return None
    codes.update(expires_at=now)
    return agent_id


def redeem_code_and_issue_key(code: str, *, source: str, host: str, now: datetime) -> tuple[ApiKey, str]:
    """Exchange a code for its key. `source` is the caller's address, `host` the host name that it reports.

    Raises Forbidden for a code that is not valid, TooMany after too many of those, Conflict where a key of that name
    was made meanwhile; the code stays good then. A valid code is accepted however many wrong ones came from the same
    address: nobody guesses one, and callers that share the address must not be able to shut others out.
    """
    source = normalize_caller_network(source)
    key_hash = hash_connect_code(code)
    good = ConnectCode.objects.filter(
        pk=key_hash, used_at__isnull=True, created_at__lte=now, expires_at__gt=now
    )
    if not good.exists():
        REFUSED.require_below_limit(source, now)
    with transaction.atomic():
        row = ConnectCode.objects.filter(pk=key_hash).first()
        maker = User.objects.filter(pk=row.made_by).first() if row else None
        if (
            good.update(used_at=now, used_from=source)
            and row
            and maker
            and has_role(maker, ADMIN)
            and (row.agent_id is None or Agent.objects.filter(pk=row.agent_id).exists())
        ):
            by = person_actor(maker)
            api_key = keys.issue_api_key(
                name=row.key_name, scopes=["agent"], agent_id=row.agent_id, actor=by, now=now
            )
            audit.record_audit_entry(
                "CONNECT_CODE_USED",
                actor=by,
                target=row.key_name,
                result="success",
                reason=f"from {source}",
                metadata={"host": host[:LONGEST_HOST]},
                now=now,
            )
            return api_key
    REFUSED.record_refusal_for_limit(
        source, actor=system_actor("api"), target=row.key_name if row else None, now=now
    )
    raise Forbidden(NOT_VALID)


def hash_connect_code(code: str) -> str:
    """Return what is kept of a code; however it is written: in lower case, without dashes, O for 0."""
    plain = "".join(code.upper().replace("O", "0").replace("I", "1").replace("L", "1").split()).replace(
        "-", ""
    )
    return salted_hmac(
        "signalbox.connect", plain.encode("utf-8", "surrogatepass"), algorithm="sha256"
    ).hexdigest()


def require_connect_admin(user: User) -> None:
    if not has_role(user, ADMIN):
        raise Forbidden("Only administrators can connect machines.")
