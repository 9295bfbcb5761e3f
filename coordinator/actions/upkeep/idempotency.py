"""Idempotency: the answer to a request with an Idempotency-Key is stored in the transaction of its effect."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from coordinator.errors import Conflict
from coordinator.models import IdempotencyKey

KEEP_FOR = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """What makes a request the same as an earlier one: who sent it where with which key, and its content."""

    key_hash: str
    fingerprint: str


def derive_idempotency_claim(*, caller: str, endpoint: str, key: str, content: bytes) -> IdempotencyClaim:
    """Return the claim of one request; `caller` names the API key, so that callers cannot collide."""
    claim_text = "\n".join((caller, endpoint, key))
    return IdempotencyClaim(
        hashlib.sha256(claim_text.encode("utf-8", "surrogatepass")).hexdigest(),
        hashlib.sha256(content).hexdigest(),
    )


def find_idempotent_answer(claim: IdempotencyClaim) -> bytes | None:
    """Return the answer kept for the claim, or None. Raises Conflict where its content was another one."""
    row = IdempotencyKey.objects.filter(key_hash=claim.key_hash).first()
    if row is None:
        return None
    if row.fingerprint != claim.fingerprint:
        raise Conflict("This Idempotency-Key was already used for a different request.")
    return row.answer.encode()


def save_idempotent_answer(claim: IdempotencyClaim, answer: bytes, now: datetime) -> None:
    """Keep the answer. An IntegrityError means that the same request is being written elsewhere just now."""
    IdempotencyKey.objects.create(
        key_hash=claim.key_hash, fingerprint=claim.fingerprint, answer=answer.decode(), created_at=now
    )
