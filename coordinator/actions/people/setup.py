"""Creation of the first administrator with the link that `serve` printed, once, while there is nobody."""

from __future__ import annotations

import secrets
from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.people.keys import hash_api_key
from coordinator.errors import Conflict, UnprocessableRequest
from coordinator.identity.actors import person_actor
from coordinator.identity.roles import ADMIN
from coordinator.models import SetupToken

ALREADY = "Signalbox is already set up. Sign in, or ask an administrator for an account."
SPENT = (
    "This set-up link is not valid, was already used, or was replaced by a newer one. Restart `serve` "
    "to get a new link."
)


def is_setup_open() -> bool:
    """Return whether Signalbox still waits for its first administrator."""
    return not User.objects.exists()


def replace_setup_token(now: datetime) -> str:
    """Return a new one-time token for the set-up page; older ones stop working. Raises Conflict with users."""
    raw = secrets.token_urlsafe(32)
    with transaction.atomic():
        if not is_setup_open():
            raise Conflict(ALREADY)
        SetupToken.objects.filter(used_at__isnull=True).update(used_at=now)
        SetupToken.objects.create(token_hash=hash_api_key(raw), created_at=now)
    return raw


def setup_token_problem_or_empty(token: str) -> str:
    """Return why `token` could not be redeemed now, so that nobody fills in a form for nothing; "" where it could."""
    if not is_setup_open():
        return ALREADY
    if not settings.PASSWORD_SIGN_IN:
        return password_sign_in_off_notice()
    is_good = SetupToken.objects.filter(token_hash=hash_api_key(token), used_at__isnull=True).exists()
    return "" if is_good else SPENT


def password_sign_in_off_notice() -> str:
    """Return how the first administrator comes in while passwords are off: an account with one would be of no use."""
    return (
        f"Password sign-in is off. Sign in with {settings.OIDC_NAME} as a member of a group that has the "
        "role admin here."
    )


def redeem_setup_token(token: str, username: str, password: str, now: datetime) -> User:
    """Make the first administrator and return them.

    Raises Conflict for the second of two, a bad link, or while passwords are off.

    Raises UnprocessableRequest for a name or a password that the settings' rules do not take; the link stays good then.
    """
    if not settings.PASSWORD_SIGN_IN:
        raise Conflict(password_sign_in_off_notice())
    user = build_first_admin(username, password)
    with transaction.atomic():
        require_and_use_setup_token(token, now)
        user.save()
        user.groups.add(Group.objects.get_or_create(name=ADMIN)[0])
        audit.record_audit_entry(
            "FIRST_ADMIN_CREATED",
            actor=person_actor(user),
            target=user.username,
            result="success",
            reason="set-up link",
            now=now,
        )
    return user


def build_first_admin(username: str, password: str) -> User:
    user = User(username=User.normalize_username(username.strip()), is_staff=True, is_superuser=True)
    user.set_password(password)  # slow on purpose, so before the transaction
    try:
        user.clean_fields()
        validate_password(password, user)
    except ValidationError as problem:
        raise UnprocessableRequest(" ".join(problem.messages)) from None
    return user


def require_and_use_setup_token(token: str, now: datetime) -> None:
    """Use the token up. The lock on all open tokens lets only one of two people at once get this far."""
    waiting = SetupToken.objects.select_for_update().filter(used_at__isnull=True).order_by("token_hash")
    good = hash_api_key(token) in {row.token_hash for row in waiting}
    if not is_setup_open():
        raise Conflict(ALREADY)
    if not good:
        raise Conflict(SPENT)
    SetupToken.objects.filter(used_at__isnull=True).update(used_at=now)
