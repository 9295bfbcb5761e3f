"""What happens when somebody comes back from the provider of single sign-on (coordinator.identity.openid).

The provider says who it is and which groups they are in; the groups are their role, anew each time. An account is found
by issuer and subject alone. One that was made here is nobody's for having the same name or e-mail address: its owner
connects it, signed in with its password.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from coordinator.actions import audit, setup, users
from coordinator.actions.attempts import THIS_MACHINE, AttemptLimit, network_of
from coordinator.errors import Busy, Conflict, Forbidden, Invalid, NotFound, SignalboxError, TooMany
from coordinator.identity.actors import person, system
from coordinator.identity.openid.errors import CodeRefused
from coordinator.identity.openid.identities import Identity
from coordinator.identity.roles import ADMIN, ROLES, role_of
from coordinator.models import AuditLog, ProviderIdentity

log = logging.getLogger(__name__)
PROVIDER = system("single-sign-on")
REFUSED = AttemptLimit(
    "SIGN_IN_FAILED",
    "refused single sign-on from {source}",
    tries=30,
    window=timedelta(minutes=10),
    refusal="",
)
# Each code costs a request to the provider, whose patience with us is everybody's; without a cap, who sends codes that
# they made up also keeps all others waiting for their turn.
CODES = AttemptLimit(
    "SIGN_IN_FAILED",
    "refused code of single sign-on from {source}",
    tries=30,
    window=timedelta(minutes=10),
    refusal="Too many sign-ins from your network failed recently. Try again in a few minutes.",
)
# Where a proxy does not say whom it speaks for, everybody comes from this machine.
CODES_FROM_THIS_MACHINE = replace(CODES, tries=300)
# Many share an address: whoever makes up codes there keeps nobody out whose browser was let in before.
CODES_ON_DEVICE = replace(
    CODES,
    reason="refused code of single sign-on on known device {source}",
    tries=10,
    refusal="Too many sign-ins from this browser were refused lately. Try again in a few minutes.",
)
DEVICE_KNOWN_FOR = timedelta(days=180)
_SALT = "signalbox.provider-device"


class NoRole(Forbidden):
    """The provider knows them, but no group of theirs gives a role here."""


class Deactivated(Forbidden):
    """An administrator has switched the account off."""


class NameTaken(Conflict):
    """An account that was made here has the name already."""


class SomebodyElse(Forbidden):
    """Who came back is not who set out."""


def sign_in(identity: Identity, address: str, now: datetime) -> User:
    """Return the person's account, made where they are new, with the role that their groups give.

    Raises NoRole (the account then loses its role, too), Deactivated, NameTaken and Invalid for a name that no account
    can have.
    """
    try:
        with transaction.atomic():
            known = _known(identity)
            user = _renewed(known, identity, now) if known else _make(identity, now)
            if user.is_active and identity.role:
                _note("SIGNED_IN", user, identity, address, now)
    except IntegrityError:  # two first sign-ins of one person at once
        raise Conflict("You were just signed in from another tab or browser. Try again.") from None
    _require_welcome(user, identity)
    return user


def confirm(user: User, identity: Identity, address: str, now: datetime) -> None:
    """Note that `user` has shown anew who they are; their role follows their groups.

    Raises SomebodyElse, NoRole and Deactivated.
    """
    with transaction.atomic():
        known = _known(identity)
        if known is None or known.pk != user.pk:
            raise SomebodyElse(
                f"You signed in at {settings.OIDC_NAME} as somebody else. Nothing was confirmed: sign in there as "
                "yourself."
            )
        user = _renewed(known, identity, now)
        if user.is_active and identity.role:
            _note("SIGN_IN_CONFIRMED", user, identity, address, now)
    _require_welcome(user, identity)


def is_connected(user: User) -> bool:
    """Say whether this account belongs to somebody of the provider."""
    return ProviderIdentity.objects.filter(user_id=user.pk, issuer=settings.OIDC_ISSUER).exists()


def connect(user: User, identity: Identity, address: str, now: datetime) -> None:
    """Have `user`, who has an account of ours, sign in as `identity` from now on; their role follows their groups.

    Raises Conflict where either belongs to another already, or where no administrator would be left, and NoRole.
    """
    if not identity.role:
        raise _no_role(identity)
    try:
        with transaction.atomic():
            before = role_of(user)
            if _known(identity):
                raise Conflict(
                    f"Your {settings.OIDC_NAME} identity already belongs to another account here. Sign in "
                    "with that account."
                )
            changes = _no_superuser_unless_admin(identity.role)
            users.update(user.pk, changes, role=identity.role, by=PROVIDER, now=now)
            ProviderIdentity.objects.filter(user_id=user.pk).exclude(issuer=identity.issuer).delete()
            _tie(user, identity, now)
            _note("SIGN_IN_CONNECTED", user, identity, address, now, role_before=before)
    except IntegrityError:
        raise Conflict(
            f"Your account is already connected with another {settings.OIDC_NAME} identity."
        ) from None


def has_another_way(user: User) -> bool:
    """Say whether this person can sign in without the provider."""
    return settings.PASSWORD_SIGN_IN and user.has_usable_password()


def disconnect(user: User, address: str, now: datetime) -> None:
    """Have `user` sign in with their password alone from now on, with `role_after_disconnecting`.

    Raises Conflict where they would not get in any more, or where no administrator would be left, and NotFound where
    their account is not connected.
    """
    if not has_another_way(user):
        raise Conflict(
            f"{settings.OIDC_NAME} is the only way for you to sign in, so you cannot disconnect your "
            "account from it."
        )
    with transaction.atomic():
        user = users.locked(user.pk)  # first, as a sign-in does
        known = ProviderIdentity.objects.select_for_update().filter(user_id=user.pk).first()
        if known is None:
            raise NotFound(f"Your account is not connected with {settings.OIDC_NAME}.")
        role, had = role_after_disconnecting(user), role_of(user)
        if role != had:
            users.update(user.pk, _no_superuser_unless_admin(role), role=role, by=PROVIDER, now=now)
        known.delete()
        audit.record(
            "SIGN_IN_DISCONNECTED",
            actor=person(user),
            target=user.username,
            result="success",
            reason=f"from {address}",
            metadata={
                "issuer": known.issuer,
                "subject": known.subject,
                "role": role,
                "role_of_the_groups": had,
            },
            now=now,
        )


def role_after_disconnecting(user: User) -> str:
    """Return the role that stays without the provider: the one from before connecting, or a lower one that they have.

    It is none ("") where that is not known: the account came from the provider, or was connected before the audit log
    reaches back (90 days).
    """
    connected = AuditLog.objects.filter(event_type="SIGN_IN_CONNECTED", target_id=user.username)
    newest = connected.order_by("-id").first()
    before = newest.metadata.get("role_before") if newest and isinstance(newest.metadata, dict) else None
    had = role_of(user)
    return min(before, had, key=ROLES.index) if before in ROLES and had else ""


def check_tries(address: str, mark: str, now: datetime) -> None:
    """Raise TooMany where the provider refused too many codes lately that came from there.

    `mark` is the browser's of an earlier sign-in (`device_mark`), empty where it has none.
    """
    source, limit = _codes_from(address, mark)
    limit.check(source, now)


def device_mark() -> str:
    """Return the mark by which a browser is known as one in which the provider's answer let somebody in."""
    return signing.dumps(secrets.token_hex(8), salt=_SALT)


def _codes_from(address: str, mark: str) -> tuple[str, AttemptLimit]:
    with suppress(signing.BadSignature):
        return str(signing.loads(mark, salt=_SALT, max_age=DEVICE_KNOWN_FOR)), CODES_ON_DEVICE
    source = network_of(address)
    return source, CODES_FROM_THIS_MACHINE if source == THIS_MACHINE else CODES


def note_refusal(refusal: SignalboxError, problem: str, address: str, mark: str, now: datetime) -> None:
    """Log and audit that somebody was not let in, and why; of one address the first times in ten minutes alone.

    What is the provider's health, and not their doing, is logged alone. Nobody is locked out but by codes that the
    provider refused: many may share the address of whoever tries, and there is nothing to guess.
    """
    if isinstance(refusal, Busy):
        log.warning("single sign-on: %s", problem)
        return
    source, limit = _codes_from(address, mark)
    if not isinstance(refusal, CodeRefused):
        source, limit = network_of(address), REFUSED
    if not isinstance(refusal, TooMany) and not limit.seconds_left(source, now):
        log.warning("single sign-on from %s refused: %s", address, problem)
        limit.note(source, actor=PROVIDER, target=None, now=now, metadata={"problem": problem[:500]})


def _known(identity: Identity) -> User | None:
    """Return the account of that person; the row of one that somebody deleted elsewhere goes."""
    # Not locked: whoever changes or deletes people locks them first, and this row after (coordinator.actions.users).
    found = ProviderIdentity.objects.filter(issuer=identity.issuer, subject=identity.subject).first()
    if found is None:
        return None
    user = User.objects.filter(pk=found.user_id).first()
    if user is None:
        found.delete()
    return user


def _address(email: str) -> str:
    """Return an e-mail address that an account can have, else none: it is no reason to keep somebody out."""
    try:
        validate_email(email)
    except ValidationError:
        return ""
    return email if len(email) <= 254 else ""


def _make(identity: Identity, now: datetime) -> User:
    """Make an account for somebody new. Nobody gets one without a role, nor the first of all without the highest."""
    if not identity.role:
        raise _no_role(identity)
    if identity.role != ADMIN and setup.is_open():
        raise Conflict(
            "Signalbox has no administrator yet. An administrator must sign in first. Then try again."
        )
    name = User.normalize_username(identity.name or identity.subject)
    if User.objects.filter(username__iexact=name).exists():
        raise NameTaken(
            f"An account named {name} already exists. It is not connected with your {settings.OIDC_NAME} "
            "identity."
        )
    try:
        user = users.create(
            name,
            password=None,
            role=identity.role,
            by=PROVIDER,
            now=now,
            email=_address(identity.email),
            first_name=identity.first_name[:150],
            last_name=identity.last_name[:150],
        )
    except Invalid as problem:
        raise Invalid(
            f"{settings.OIDC_NAME} gives your name as {name[:200]!r}, which Signalbox does not accept: "
            f"{problem.detail} An administrator can choose another claim in SIGNALBOX_OIDC_NAME_CLAIM."
        ) from None
    _tie(user, identity, now)
    return user


def _tie(user: User, identity: Identity, now: datetime) -> None:
    """Write down whose account it is at the provider."""
    ProviderIdentity.objects.create(
        user_id=user.pk, issuer=identity.issuer, subject=identity.subject, made_at=now, last_used_at=now
    )


def _no_superuser_unless_admin(role: str) -> dict[str, bool]:
    """Return what changes with a role: a superuser is an administrator whatever the groups say."""
    return {} if role == ADMIN else {"is_superuser": False}


def _renewed(user: User, identity: Identity, now: datetime) -> User:
    """Give the account the role that the groups give now: also none, and also where that leaves no administrator.

    Raises NotFound where it is deleted, or no longer theirs, meanwhile.
    """
    role = identity.role or ""
    if users.group_of(user) != role or (user.is_superuser and role != ADMIN):
        changes = _no_superuser_unless_admin(role)
        user = users.update(user.pk, changes, role=role, by=PROVIDER, keep_an_administrator=False, now=now)
    theirs = ProviderIdentity.objects.filter(
        user_id=user.pk, issuer=identity.issuer, subject=identity.subject
    )
    if not theirs.update(last_used_at=now):
        raise NotFound("This person no longer exists.")
    return user


def _require_welcome(user: User, identity: Identity) -> None:
    if not user.is_active:
        raise Deactivated("This account is switched off. Ask an administrator.")
    if not identity.role:
        raise _no_role(identity)


def _no_role(identity: Identity) -> NoRole:
    return NoRole(
        f"You are {identity.name or identity.subject} at {settings.OIDC_NAME}, but none of your groups "
        "there has a role here. Ask an administrator to add you to a group that has one."
    )


def _note(
    event_type: str, user: User, identity: Identity, address: str, now: datetime, **more: str | None
) -> None:
    audit.record(
        event_type,
        actor=person(user),
        target=user.username,
        result="success",
        reason=f"from {address}",
        metadata={"issuer": identity.issuer, "subject": identity.subject, "role": identity.role, **more},
        now=now,
    )
