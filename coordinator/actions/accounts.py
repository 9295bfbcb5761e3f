"""What happens to people's accounts: signing in, failing to, and a new password."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from coordinator.actions import audit
from coordinator.actions.attempts import Limit
from coordinator.actors import Actor, person, system
from coordinator.errors import Invalid

# Wrong passwords from one address, whatever the name.
FAILED = Limit(
    "SIGN_IN_FAILED",
    "wrong name or password from {source}",
    tries=20,
    window=timedelta(minutes=10),
    says="Too many wrong passwords from your address. Try again in some minutes.",
)


def check_tries(address: str, now: datetime) -> None:
    """Raise TooMany where this address has guessed too often lately."""
    FAILED.check(address, now)


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


def note_failed_sign_in(username: str, address: str, now: datetime) -> None:
    """Write down a failed sign-in; names that nobody has are left out (people type passwords there)."""
    known = User.objects.filter(username=username).exists()
    FAILED.note(address, actor=system("sign-in"), target=username if known else None, now=now)


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
