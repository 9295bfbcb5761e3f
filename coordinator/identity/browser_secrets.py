"""The second half of a sign-in: a secret that a browser keeps for our origin alone and never sends as a cookie.

Cookies ignore ports: any program that serves a page on this host is sent the session's cookie by whoever opens
that page. So a cookie reads, but does nothing. The browser makes a secret when its person signs in, keeps it in
the storage of our origin (scheme, host and port) and sends it with all that changes anything; the session holds
its hash. Without the secret, or once the sign-in is old, the password is asked for.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase

HEADER = "X-Signalbox-Proof"  # in which scripts and programs send the secret
# In the session: {"hash": SHA-256 of the secret, "at": when the person last confirmed who they are (epoch seconds),
# "by": how (ConfirmedBy)}
PROOF_SESSION_KEY = "proof"
SHAPE = re.compile(r"[0-9a-f]{64}")
Lack = Literal["missing", "wrong", "old", "unconfirmed"]
# "provider session": the provider let somebody in that it may not have asked just then.
ConfirmedBy = Literal["password", "passkey", "recovery code", "provider", "provider session"]


def bind_or_unbind_session_browser(
    session: SessionBase, secret: str, now: datetime, by: ConfirmedBy = "password"
) -> None:
    """Tie the session to the browser that holds `secret`; text of another shape leaves it tied to none.

    Only for who has just shown who they are, `by` a password (the set-up link counts as one), a passkey, a recovery
    code or the sign-in service.
    """
    if SHAPE.fullmatch(secret):
        session[PROOF_SESSION_KEY] = {
            "hash": hash_browser_secret(secret),
            "at": int(now.timestamp()),
            "by": by,
        }
    else:
        session.pop(PROOF_SESSION_KEY, None)


def find_browser_secret_problem(session: SessionBase, secret: str, now: datetime) -> Lack | None:
    """Return what is wrong with what a browser offers as its secret, or None where it proves the sign-in."""
    stored_proof = session.get(PROOF_SESSION_KEY)
    if not isinstance(stored_proof, dict) or not secret:
        return "missing"
    if not hmac.compare_digest(str(stored_proof.get("hash", "")), hash_browser_secret(secret)):
        return "wrong"
    proven_at = datetime.fromtimestamp(int(stored_proof.get("at", 0)), UTC)
    return "old" if now - proven_at > timedelta(seconds=settings.SIGN_IN_GOOD_FOR) else None


def is_person_recently_confirmed(
    session: SessionBase, within: timedelta, now: datetime, *, needs_passkey: bool
) -> bool:
    """Return whether the person confirmed who they are within that time.

    With `needs_passkey` a password does not count: its owner has a passkey. Nor does a sign-in at the provider that may
    have asked nobody.
    """
    stored_proof = session.get(PROOF_SESSION_KEY)
    if not isinstance(stored_proof, dict):
        return False
    counted = {"passkey", "recovery code", "provider"} | (set() if needs_passkey else {"password"})
    return (
        stored_proof.get("by") in counted
        and now - datetime.fromtimestamp(int(stored_proof.get("at", 0)), UTC) <= within
    )


def stored_browser_secret_hash(session: SessionBase) -> str:
    """Return the hash of the secret that the session is tied to; empty where it is tied to none."""
    stored_proof = session.get(PROOF_SESSION_KEY)
    return str(stored_proof.get("hash", "")) if isinstance(stored_proof, dict) else ""


def hash_browser_secret(secret: str) -> str:
    """Return what a session keeps of a browser's secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
