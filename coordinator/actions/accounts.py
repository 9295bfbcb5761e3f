"""What happens to people's accounts: signing in, failing to, and a new password."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.crypto import salted_hmac

from coordinator.actions import audit
from coordinator.actions.attempts import Limit, network_of
from coordinator.actors import Actor, person, system
from coordinator.errors import Invalid

# Wrong passwords slow down, by one of two counts. A browser that somebody has signed in with before has a count
# of its own for that account: whoever guesses at a name from elsewhere cannot lock its owner out.
FROM_ADDRESS = Limit(
    "SIGN_IN_FAILED",
    "wrong name or password from {source}",
    tries=20,
    window=timedelta(minutes=10),
    says="Too many wrong passwords from your address. Try again in some minutes.",
)
FOR_ACCOUNT = Limit(
    "SIGN_IN_FAILED",
    "",
    tries=20,
    window=timedelta(minutes=10),
    says=(
        "Too many wrong passwords for this name. Try again in some minutes, or in a browser where you have "
        "signed in before: there you need not wait."
    ),
    by_target=True,
)
ON_DEVICE = Limit(
    "SIGN_IN_FAILED",
    "wrong password on known device {source}",
    tries=10,
    window=timedelta(minutes=10),
    says="Too many wrong passwords in this browser. Try again in some minutes.",
)
DEVICE_KNOWN_FOR = timedelta(days=180)
_SALT = "signalbox.device"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Somebody tries to sign in: as whom, from where, and with which mark of an earlier sign-in (`device_mark`)."""

    username: str
    address: str
    mark: str = ""

    @property
    def target(self) -> str:
        """The name as the audit log may hold it: people type passwords there, so only where somebody has it."""
        if User.objects.filter(username=self.username).exists():
            return self.username
        return f"unknown:{salted_hmac(_SALT, self.username).hexdigest()[:16]}"

    def limits(self) -> list[tuple[Limit, str]]:
        """Return the limits that hold for this attempt, each with what it counts by."""
        if device := self._device():
            return [(ON_DEVICE, device)]
        return [(FROM_ADDRESS, network_of(self.address)), (FOR_ACCOUNT, self.target)]

    def _device(self) -> str | None:
        try:
            user_id, device = signing.loads(self.mark, salt=_SALT, max_age=DEVICE_KNOWN_FOR)
        except (signing.BadSignature, ValueError, TypeError):
            return None
        known = User.objects.filter(pk=user_id, username=self.username).exists()
        return str(device) if known else None


def device_mark(user: User) -> str:
    """Return the mark by which a browser is known as one that this person has signed in with."""
    return signing.dumps([user.pk, secrets.token_hex(8)], salt=_SALT)


def check_tries(attempt: Attempt, now: datetime) -> None:
    """Raise TooMany where too many wrong passwords came lately from there, or for that name."""
    for limit, source in attempt.limits():
        limit.check(source, now)


def note_sign_in(user: User, address: str, now: datetime) -> None:
    """Write down that a person signed in, and from where."""
    audit.record(
        "SIGNED_IN",
        actor=person(user),
        target=user.username,
        result="success",
        reason=f"from {address}",
        now=now,
    )


def note_failed_sign_in(attempt: Attempt, now: datetime) -> None:
    """Write down a failed sign-in, and that no more are taken for a while where that was one too many."""
    limits, target, actor = attempt.limits(), attempt.target, system("sign-in")
    first, source = limits[0]
    first.note(source, actor=actor, target=target, now=now)
    for limit, counted_by in limits:
        if limit.seconds_left(counted_by, now):
            reason = f"{limit.tries} wrong passwords within {limit.window} ({counted_by})"
            audit.record(
                "SIGN_IN_SLOWED", actor=actor, target=target, result="denied", reason=reason, now=now
            )


def change_password(user: User, password: str, *, by: Actor, now: datetime) -> None:
    """Give `user` a new password, which ends their other sessions. Raises Invalid for a weak one."""
    try:
        validate_password(password, user)
    except ValidationError as problem:
        raise Invalid(" ".join(problem.messages)) from None
    user.set_password(password)
    with transaction.atomic():
        user.save(update_fields=["password"])
        audit.record("PASSWORD_CHANGED", actor=by, target=user.username, result="success", now=now)
