"""Recovery codes: for people who have lost their passkey or forgotten their password. Shown once, good once each.

A code is 80 random bits, so a plain hash of it cannot be guessed back. It is typed where a password is, under the
same limits. Only people who sign in here have codes; those of a provider confirm there.
"""

from __future__ import annotations

import base64
import re
import secrets
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.people.keys import hash_api_key
from coordinator.actions.people.provider_sign_ins import has_password_sign_in
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor, person_actor
from coordinator.models import RecoveryCode

CODES = 10
CODE_BYTES = 10
SHAPE = re.compile(r"[a-z2-7]{16}")


def replace_recovery_codes(user: User, *, actor: Actor, now: datetime) -> list[str]:
    """Return a person's new codes, in place of all that they had. Raises Conflict for who does not sign in here."""
    if not has_password_sign_in(user):
        raise Conflict("Recovery codes are for people who sign in here with a password.")
    codes = [generate_recovery_code() for _ in range(CODES)]
    with transaction.atomic():
        User.objects.select_for_update().filter(pk=user.pk).first()  # of two at once, only one set stays
        RecoveryCode.objects.filter(user_id=user.pk).delete()
        RecoveryCode.objects.bulk_create(
            RecoveryCode(user_id=user.pk, code_hash=hash_recovery_code(user, code), made_at=now)
            for code in codes
        )
        audit.record_audit_entry(
            "RECOVERY_CODES_CREATED", actor=actor, target=user.username, result="success", now=now
        )
    return codes


def use_recovery_code(user: User, text: str, event_type: str, address: str, now: datetime) -> bool:
    """Use up one of the person's codes and write down for what; say whether it was one that still counts.

    Args:
        user: Whose code it must be.
        text: What was typed.
        event_type: The audit log's word for what it is used for: SIGNED_IN or SIGN_IN_CONFIRMED.
        address: The caller's address.
        now: The time.
    """
    code = normalize_recovery_code(text)
    if not code or not user.is_active or not has_password_sign_in(user):
        return False
    with transaction.atomic():
        unused = RecoveryCode.objects.filter(user_id=user.pk, used_at__isnull=True)
        if not unused.filter(code_hash=hash_recovery_code(user, code)).update(used_at=now):
            return False
        audit.record_audit_entry(
            event_type,
            actor=person_actor(user),
            target=user.username,
            result="success",
            reason=f"from {address}",
            metadata={"by": "recovery code", "left": unused.count()},
            now=now,
        )
    return True


def count_unused_recovery_codes(user: User) -> int:
    """Return how many codes a person has left."""
    return RecoveryCode.objects.filter(user_id=user.pk, used_at__isnull=True).count()


def generate_recovery_code() -> str:
    text = base64.b32encode(secrets.token_bytes(CODE_BYTES)).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def normalize_recovery_code(text: str) -> str:
    """Return what was typed as a code is hashed; "" where it has not the shape of one."""
    code = text.strip().lower().replace("-", "").replace(" ", "")
    return code if SHAPE.fullmatch(code) else ""


def hash_recovery_code(user: User, code: str) -> str:
    return hash_api_key(f"recovery:{user.pk}:{normalize_recovery_code(code)}")
