"""Sign-ins of people who return from the provider of single sign-on (coordinator.identity.openid).

The provider reports who they are and which groups they are in; the groups determine their role at every sign-in. An
account is found by issuer and subject alone. A local account is not matched by the same name or e-mail address: its
owner connects it, signed in with its password.
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

from coordinator.actions.audit import audit
from coordinator.actions.people import accounts, setup, users
from coordinator.actions.people.attempts import THIS_MACHINE, AttemptLimit, normalize_caller_network
from coordinator.errors import (
    Conflict,
    Forbidden,
    NotFound,
    ServiceBusy,
    SignalboxError,
    TooManyRequests,
    UnprocessableRequest,
)
from coordinator.identity.actors import person_actor, system_actor
from coordinator.identity.openid.errors import AuthorizationCodeRefused
from coordinator.identity.openid.identities import OpenIdIdentity
from coordinator.identity.passkeys import relying_party_id
from coordinator.identity.roles import ADMIN, ROLES, highest_role_of_user
from coordinator.models import AuditLog, Passkey, ProviderIdentity, RecoveryCode

log = logging.getLogger(__name__)
PROVIDER = system_actor("single-sign-on")
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
# Many share an address: made-up codes from there do not block a browser that was let in before.
CODES_ON_DEVICE = replace(
    CODES,
    reason="refused code of single sign-on on known device {source}",
    tries=10,
    refusal="Too many sign-ins from this browser were refused lately. Try again in a few minutes.",
)
DEVICE_KNOWN_FOR = timedelta(days=180)
_SALT = "signalbox.provider-device"


class NoProviderRole(Forbidden):
    """The provider knows them, but no group of theirs gives a role here."""


class AccountDeactivated(Forbidden):
    """An administrator has switched the account off."""


class UsernameTaken(Conflict):
    """An account that was made here has the name already."""


class IdentityMismatch(Forbidden):
    """The person who returned is not the one who started the sign-in."""


def sign_in_verified_identity(identity: OpenIdIdentity, address: str, now: datetime) -> User:
    """Return the person's account, made where they are new, with the role that their groups give.

    Raises NoProviderRole (the account then loses its role, too), AccountDeactivated, UsernameTaken and
    UnprocessableRequest for a name that no account can have.
    """
    try:
        with transaction.atomic():
            provider_user = find_user_or_drop_orphan_identity(identity)
            user = (
                sync_provider_role(provider_user, identity, now)
                if provider_user
                else create_provider_user(identity, now)
            )
            if user.is_active and identity.role:
                audit_provider_sign_in("SIGNED_IN", user, identity, address, now)
    except IntegrityError:  # two first sign-ins of one person at once
        raise Conflict("You were just signed in from another tab or browser. Try again.") from None
    require_active_role(user, identity)
    return user


def confirm_provider_identity(user: User, identity: OpenIdIdentity, address: str, now: datetime) -> None:
    """Record that `user` has confirmed their identity again; update their role from their groups.

    Raises IdentityMismatch, NoProviderRole and AccountDeactivated.
    """
    with transaction.atomic():
        provider_user = find_user_or_drop_orphan_identity(identity)
        if provider_user is None or provider_user.pk != user.pk:
            raise IdentityMismatch(
                f"You signed in at {settings.OIDC_NAME} as somebody else. Nothing was confirmed: sign in there as "
                "yourself."
            )
        user = sync_provider_role(provider_user, identity, now)
        if user.is_active and identity.role:
            audit_provider_sign_in("SIGN_IN_CONFIRMED", user, identity, address, now)
    require_active_role(user, identity)


def is_user_connected_to_provider(user: User) -> bool:
    """Return whether this account belongs to somebody of the provider."""
    return ProviderIdentity.objects.filter(user_id=user.pk, issuer=settings.OIDC_ISSUER).exists()


def connect_provider_account(user: User, identity: OpenIdIdentity, address: str, now: datetime) -> None:
    """Have `user`, who has an account of ours, sign in as `identity` from now on; their role follows their
    groups.

    Raises Conflict where either belongs to another already, or where no administrator would be left, and
    NoProviderRole.
    """
    if not identity.role:
        raise build_no_role_error(identity)
    try:
        with transaction.atomic():
            before = highest_role_of_user(user)
            if find_user_or_drop_orphan_identity(identity):
                raise Conflict(
                    f"Your {settings.OIDC_NAME} identity already belongs to another account here. Sign in "
                    "with that account."
                )
            changes = build_superuser_fields_for_role(identity.role)
            users.update_user(user.pk, changes, role=identity.role, actor=PROVIDER, now=now)
            ProviderIdentity.objects.filter(user_id=user.pk).exclude(issuer=identity.issuer).delete()
            link_provider_identity(user, identity, now)
            audit_provider_sign_in(
                "SIGN_IN_CONNECTED", user, identity, address, now, role_before=before, user_id=user.pk
            )
    except IntegrityError:
        raise Conflict(
            f"Your account is already connected with another {settings.OIDC_NAME} identity."
        ) from None


def has_password_sign_in(user: User) -> bool:
    """Return whether this person can sign in without the provider."""
    return settings.PASSWORD_SIGN_IN and user.has_usable_password()


def can_sign_in_without_provider(user: User) -> bool:
    """Return whether this person has a password that they know, a passkey or a recovery code to sign in with.

    A passkey counts where it belongs to this installation's host name: another does not work.
    """
    if not has_password_sign_in(user):
        return False
    return (
        not accounts.has_unknown_password(user)
        or Passkey.objects.filter(user_id=user.pk, rp_id=relying_party_id()).exists()
        or RecoveryCode.objects.filter(user_id=user.pk, used_at__isnull=True).exists()
    )


def has_lost_last_sign_in(user: User) -> bool:
    """Return whether this person, who signs in here and not at the provider, has nothing left to sign in with."""
    return (
        has_password_sign_in(user)
        and not is_user_connected_to_provider(user)
        and not can_sign_in_without_provider(user)
    )


def disconnect_provider_account(user: User, address: str, now: datetime) -> None:
    """Have `user` sign in with their password alone from now on, with `role_after_provider_disconnect`.

    Raises Conflict where they would not get in any more, or where no administrator would be left, and NotFound where
    their account is not connected.
    """
    with transaction.atomic():
        user = users.lock_user_and_decision_rights(user.pk)  # first, as a sign-in does
        if not can_sign_in_without_provider(user):
            raise Conflict(
                f"{settings.OIDC_NAME} is the only way for you to sign in, so you cannot disconnect your "
                "account from it."
            )
        provider_identity = ProviderIdentity.objects.select_for_update().filter(user_id=user.pk).first()
        if provider_identity is None:
            raise NotFound(f"Your account is not connected with {settings.OIDC_NAME}.")
        role, had = role_after_provider_disconnect(user), highest_role_of_user(user)
        if role != had:
            users.update_user(
                user.pk, build_superuser_fields_for_role(role), role=role, actor=PROVIDER, now=now
            )
        provider_identity.delete()
        audit.record_audit_entry(
            "SIGN_IN_DISCONNECTED",
            actor=person_actor(user),
            target=user.username,
            result="success",
            reason=f"from {address}",
            metadata={
                "issuer": provider_identity.issuer,
                "subject": provider_identity.subject,
                "role": role,
                "role_of_the_groups": had,
            },
            now=now,
        )


def role_after_provider_disconnect(user: User) -> str:
    """Return the role that stays without the provider: the one from before connecting, or a lower one that they have.

    It is none ("") where that is not known: the account came from the provider, or was connected before the audit log
    reaches back (90 days).
    """
    connected = AuditLog.objects.filter(event_type="SIGN_IN_CONNECTED").order_by("-id")
    newest = next((row for row in connected if is_connection_of_user(row, user)), None)
    before = newest.metadata.get("role_before") if newest else None
    had = highest_role_of_user(user)
    return min(before, had, key=ROLES.index) if before in ROLES and had else ""


def is_connection_of_user(row: AuditLog, user: User) -> bool:
    """Say whether a SIGN_IN_CONNECTED row is about this account, whatever it was called then.

    Rows of earlier releases name the account alone.
    """
    if not isinstance(row.metadata, dict):
        return False
    return bool(row.metadata.get("user_id", user.pk if row.target_id == user.username else None) == user.pk)


def require_provider_codes_below_limit(address: str, mark: str, now: datetime) -> None:
    """Raise TooManyRequests where the provider refused too many codes lately that came from there.

    `mark` is the browser's of an earlier sign-in (`sign_provider_device_token`), empty where it has none.
    """
    source, limit = choose_provider_code_limit(address, mark)
    limit.require_below_limit(source, now)


def sign_provider_device_token() -> str:
    """Return the mark by which a browser is known as one in which the provider's answer let somebody in."""
    return signing.dumps(secrets.token_hex(8), salt=_SALT)


def choose_provider_code_limit(address: str, mark: str) -> tuple[str, AttemptLimit]:
    with suppress(signing.BadSignature):
        return str(signing.loads(mark, salt=_SALT, max_age=DEVICE_KNOWN_FOR)), CODES_ON_DEVICE
    source = normalize_caller_network(address)
    return source, CODES_FROM_THIS_MACHINE if source == THIS_MACHINE else CODES


def record_provider_refusal(
    refusal: SignalboxError, problem: str, address: str, mark: str, now: datetime
) -> None:
    """Log and audit why a sign-in was refused; per address only the first times in ten minutes.

    Failures of the provider itself are logged only. People are locked out only by codes that the provider refused: many
    may share one address, and there is nothing to guess.
    """
    if isinstance(refusal, ServiceBusy):
        log.warning("single sign-on: %s", problem)
        return
    source, limit = choose_provider_code_limit(address, mark)
    if not isinstance(refusal, AuthorizationCodeRefused):
        source, limit = normalize_caller_network(address), REFUSED
    if not isinstance(refusal, TooManyRequests) and not limit.seconds_until_retry(source, now):
        log.warning("single sign-on from %s refused: %s", address, problem)
        limit.record_refusal_for_limit(
            source, actor=PROVIDER, target=None, now=now, metadata={"problem": problem[:500]}
        )


def find_user_or_drop_orphan_identity(identity: OpenIdIdentity) -> User | None:
    """Return the account of that person; the row of one that somebody deleted elsewhere goes."""
    # Not locked: changes and deletions of people lock them first, and this row after
    # (coordinator.actions.people.users).
    provider_identity = ProviderIdentity.objects.filter(
        issuer=identity.issuer, subject=identity.subject
    ).first()
    if provider_identity is None:
        return None
    user = User.objects.filter(pk=provider_identity.user_id).first()
    if user is None:
        provider_identity.delete()
    return user


def valid_email_or_blank(email: str) -> str:
    """Return an e-mail address that an account can have, else none: it is no reason to keep somebody out."""
    try:
        validate_email(email)
    except ValidationError:
        return ""
    return email if len(email) <= 254 else ""


def create_provider_user(identity: OpenIdIdentity, now: datetime) -> User:
    """Make an account for somebody new. Nobody gets one without a role, nor the first of all without the highest."""
    if not identity.role:
        raise build_no_role_error(identity)
    if identity.role != ADMIN and setup.is_setup_open():
        raise Conflict(
            "Signalbox has no administrator yet. An administrator must sign in first. Then try again."
        )
    name = User.normalize_username(identity.name or identity.subject)
    if User.objects.filter(username__iexact=name).exists():
        raise UsernameTaken(
            f"An account named {name} already exists. It is not connected with your {settings.OIDC_NAME} "
            "identity."
        )
    try:
        user = users.create_user(
            name,
            password=None,
            role=identity.role,
            actor=PROVIDER,
            now=now,
            email=valid_email_or_blank(identity.email),
            first_name=identity.first_name[:150],
            last_name=identity.last_name[:150],
        )
    except UnprocessableRequest as problem:
        raise UnprocessableRequest(
            f"{settings.OIDC_NAME} gives your name as {name[:200]!r}, which Signalbox does not accept: "
            f"{problem.detail} An administrator can choose another claim in SIGNALBOX_OIDC_NAME_CLAIM."
        ) from None
    link_provider_identity(user, identity, now)
    return user


def link_provider_identity(user: User, identity: OpenIdIdentity, now: datetime) -> None:
    """Write down whose account it is at the provider."""
    ProviderIdentity.objects.create(
        user_id=user.pk, issuer=identity.issuer, subject=identity.subject, made_at=now, last_used_at=now
    )


def build_superuser_fields_for_role(role: str) -> dict[str, bool]:
    """Return what changes with a role: a superuser is an administrator whatever the groups say."""
    return {} if role == ADMIN else {"is_superuser": False}


def sync_provider_role(user: User, identity: OpenIdIdentity, now: datetime) -> User:
    """Give the account the role that the groups give now: also none, and also where that leaves no administrator.

    Raises NotFound where it is deleted, or no longer theirs, meanwhile.
    """
    role = identity.role or ""
    if users.group_role_or_empty(user) != role or (user.is_superuser and role != ADMIN):
        changes = build_superuser_fields_for_role(role)
        user = users.update_user(
            user.pk, changes, role=role, actor=PROVIDER, keep_an_administrator=False, now=now
        )
    identities = ProviderIdentity.objects.filter(
        user_id=user.pk, issuer=identity.issuer, subject=identity.subject
    )
    if not identities.update(last_used_at=now):
        raise NotFound("This person no longer exists.")
    return user


def require_active_role(user: User, identity: OpenIdIdentity) -> None:
    if not user.is_active:
        raise AccountDeactivated("This account is switched off. Ask an administrator.")
    if not identity.role:
        raise build_no_role_error(identity)


def build_no_role_error(identity: OpenIdIdentity) -> NoProviderRole:
    return NoProviderRole(
        f"You are {identity.name or identity.subject} at {settings.OIDC_NAME}, but none of your groups "
        "there has a role here. Ask an administrator to add you to a group that has one."
    )


def audit_provider_sign_in(
    event_type: str,
    user: User,
    identity: OpenIdIdentity,
    address: str,
    now: datetime,
    **more: str | int | None,
) -> None:
    audit.record_audit_entry(
        event_type,
        actor=person_actor(user),
        target=user.username,
        result="success",
        reason=f"from {address}",
        metadata={"issuer": identity.issuer, "subject": identity.subject, "role": identity.role, **more},
        now=now,
    )
