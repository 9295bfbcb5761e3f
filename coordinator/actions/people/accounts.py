"""Account events: sign-ins, failed sign-ins, and new passwords."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.hashers import identify_hasher, make_password
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.crypto import get_random_string, salted_hmac

from coordinator.actions.audit import audit
from coordinator.actions.people.attempts import THIS_MACHINE, AttemptLimit, normalize_caller_network
from coordinator.errors import Forbidden, UnprocessableRequest
from coordinator.identity.actors import Actor, person_actor, system_actor
from coordinator.models import AuditLog

UNKNOWN_PASSWORD_SALT = "nobody-knows-it-"  # noqa: S105 - no secret: the password with it is random

# Wrong passwords slow down. A browser that somebody has signed in with before has a count of its own for that account:
# an attacker who guesses from elsewhere cannot lock its owner out. For all other browsers three counts hold: of a name
# from one address, of a name from everywhere, and of an address. The first is the lowest, so that no single address
# uses up the second. An address that many share (this machine's own, a proxy's) must not be locked for all by a program
# that guesses there, so the third does not apply to people who have signed in from there before. It reveals to a caller
# at such an address which names have; verdicts reveal names to every program anyway.
_FROM = "wrong name or password from {source}"
FOR_NAME_FROM_ADDRESS = AttemptLimit(
    "SIGN_IN_FAILED",
    _FROM,
    tries=20,
    window=timedelta(minutes=10),
    refusal=(
        "Too many wrong passwords for this name. Try again in a few minutes, or use a browser in "
        "which you have signed in before."
    ),
)
FOR_ACCOUNT = replace(FOR_NAME_FROM_ADDRESS, reason="", tries=50, by_target=True)
FROM_ADDRESS = AttemptLimit(
    "SIGN_IN_FAILED",
    _FROM,
    tries=20,
    window=timedelta(minutes=10),
    refusal=(
        "Too many wrong passwords from your address. Try again in a few minutes, or use a browser in "
        "which you have signed in before."
    ),
)
# On this machine agents may guess while people sign in here for the first time.
FROM_THIS_MACHINE = replace(FROM_ADDRESS, tries=200)
ON_DEVICE = AttemptLimit(
    "SIGN_IN_FAILED",
    "wrong password on known device {source}",
    tries=10,
    window=timedelta(minutes=10),
    refusal="Too many wrong passwords in this browser. Try again in a few minutes.",
)
UNPROVEN = AttemptLimit(
    "SIGN_IN_UNPROVEN",
    "with a session's cookie alone from {source}",
    tries=20,
    window=timedelta(minutes=10),
    refusal="",
)
DEVICE_KNOWN_FOR = timedelta(days=180)
_SALT = "signalbox.device"


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """An attempt to sign in: the name, the address, and the browser's mark of an earlier sign-in
    (`sign_device_token`).
    """

    username: str
    address: str
    mark: str = ""

    @property
    def audited_username(self) -> str:
        """Return the name as the audit log may hold it: people type passwords there, so only where somebody has it."""
        if User.objects.filter(username=self.username).exists():
            return self.username
        return f"unknown:{salted_hmac(_SALT, self.username).hexdigest()[:16]}"

    def applicable_limits(self) -> list[tuple[AttemptLimit, str]]:
        """Return the limits that hold for this attempt, each with what it counts by."""
        if device := self.decode_device_token():
            return [(ON_DEVICE, device)]
        network, target = normalize_caller_network(self.address), self.audited_username
        limits = [(replace(FOR_NAME_FROM_ADDRESS, target=target), network), (FOR_ACCOUNT, target)]
        if not self.has_signed_in_from_address():
            limits.append((FROM_THIS_MACHINE if network == THIS_MACHINE else FROM_ADDRESS, network))
        return limits

    def has_signed_in_from_address(self) -> bool:
        """Return whether that name has signed in from that address, as far as the audit log reaches back (90 days)."""
        return AuditLog.objects.filter(
            event_type="SIGNED_IN", target_id=self.username, reason=f"from {self.address}"
        ).exists()

    def decode_device_token(self) -> str | None:
        user = User.objects.filter(username=self.username).first() if self.mark else None
        if user is None:
            return None
        try:
            user_id, device = signing.loads(
                self.mark, key=device_token_signing_key(user), salt=_SALT, max_age=DEVICE_KNOWN_FOR
            )
        except (signing.BadSignature, ValueError, TypeError):
            return None
        return str(device) if user_id == user.pk else None


def sign_device_token(user: User) -> str:
    """Return the mark by which a browser is known as one that this person has signed in with."""
    return signing.dumps([user.pk, secrets.token_hex(8)], key=device_token_signing_key(user), salt=_SALT)


def device_token_signing_key(user: User) -> str:
    """Return what signs this person's marks: who knows the secret key alone could have as many tries as marks."""
    return settings.SECRET_KEY + user.password


def require_sign_in_below_limits(attempt: SignInAttempt, now: datetime) -> None:
    """Raise TooMany where too many wrong passwords came lately from there, or for that name."""
    for limit, source in attempt.applicable_limits():
        limit.require_below_limit(source, now)


def audit_sign_in(user: User, address: str, now: datetime) -> None:
    """Write down that a person signed in, and from where."""
    audit_passed_password_check(user, "SIGNED_IN", address, now)


def audit_passed_password_check(user: User, event_type: str, address: str, now: datetime) -> None:
    audit.record_audit_entry(
        event_type,
        actor=person_actor(user),
        target=user.username,
        result="success",
        reason=f"from {address}",
        now=now,
    )


def confirm_password_and_audit(user: User, password: str, attempt: SignInAttempt, now: datetime) -> None:
    """Check the password of a signed-in person. Raises Forbidden for a wrong one, TooMany after many."""
    require_sign_in_below_limits(attempt, now)
    if not user.check_password(password):
        record_failed_sign_in(attempt, now)
        raise Forbidden("Wrong password. Try again.")
    audit_passed_password_check(user, "SIGN_IN_CONFIRMED", attempt.address, now)


def audit_unproven_session_attempt(user: User, address: str, attempt: str, now: datetime) -> None:
    """Write down that somebody tried `attempt` with the cookie of a person's session alone, the first 20 times."""
    source = normalize_caller_network(address)
    if not UNPROVEN.seconds_until_retry(source, now):
        UNPROVEN.record_refusal_for_limit(
            source, actor=system_actor("sign-in"), target=user.username, now=now, metadata={"tried": attempt}
        )


def record_failed_sign_in(attempt: SignInAttempt, now: datetime) -> None:
    """Write down a failed sign-in, and that no more are taken for a while where that was one too many."""
    limits, target, actor = attempt.applicable_limits(), attempt.audited_username, system_actor("sign-in")
    first, source = limits[0]
    first.record_refusal_for_limit(source, actor=actor, target=target, now=now)
    for limit, counted_by in limits:
        if limit.seconds_until_retry(counted_by, now):
            reason = f"{limit.tries} wrong passwords within {limit.window} ({counted_by})"
            audit.record_audit_entry(
                "SIGN_IN_SLOWED", actor=actor, target=target, result="denied", reason=reason, now=now
            )


def set_unknown_password_on_unsaved_user(user: User) -> None:
    """Give an account that is not stored yet a password that nobody knows: it signs in with a passkey.

    Its salt says so, until somebody sets another password.
    """
    user.password = make_password(
        secrets.token_urlsafe(32), salt=UNKNOWN_PASSWORD_SALT + get_random_string(16)
    )


def has_unknown_password(user: User) -> bool:
    """Return whether nobody knows the password, since the account was made with a passkey."""
    if not user.has_usable_password():
        return False
    try:
        salt = identify_hasher(user.password).decode(user.password)["salt"]
    except (ValueError, AssertionError):  # of a hasher that this installation has not
        return False
    return str(salt).startswith(UNKNOWN_PASSWORD_SALT)


def change_password(user: User, password: str, *, actor: Actor, now: datetime) -> None:
    """Give `user` a new password, which ends their other sessions. Raises UnprocessableRequest for a weak one."""
    try:
        validate_password(password, user)
    except ValidationError as problem:
        raise UnprocessableRequest(" ".join(problem.messages)) from None
    user.set_password(password)
    with transaction.atomic():
        user.save(update_fields=["password"])
        audit.record_audit_entry(
            "PASSWORD_CHANGED", actor=actor, target=user.username, result="success", now=now
        )
