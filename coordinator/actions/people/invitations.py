"""Invitations: links for making one's own account, each with a role, good once and for a few days at most.

The link's token is 256 random bits and is stored as a hash. The person who opens the link chooses a name, and a
password or a passkey: nobody else ever knows it.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from coordinator.actions.people import accounts, passkeys, users
from coordinator.actions.people.keys import hash_api_key
from coordinator.actions.people.open_invitations import list_open_invitations, record_invitation_event
from coordinator.errors import Conflict, Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import person_actor
from coordinator.identity.roles import ADMIN, ROLES, has_role
from coordinator.models import Invitation

LIFETIMES = {1: "in a day", 3: "in 3 days", 7: "in a week"}  # days
MAX_LABEL_CHARACTERS = 100
# After it has ended, so that the page can say what became of it.
EXPIRED_INVITATION_RETENTION = timedelta(days=30)
NOT_VALID = "This invitation is not valid: it was used, was revoked or has expired. Ask for a new one."
NO_PASSWORDS = "Password sign-in is off, so nobody can join by an invitation."


def create_invitation(
    *, role: str, days: int, user: User, now: datetime, label: str = ""
) -> tuple[Invitation, str]:
    """Return an invitation and its token, which is never shown again.

    Args:
        role: The role of the account that is made with it.
        days: For how long it is good, one of LIFETIMES.
        by: The administrator who invites.
        now: The time.
        label: Whom it is for.

    Raises:
        Forbidden: `by` is no administrator.
        UnprocessableRequest: There is no such role or lifetime, or the label is too long.
        Conflict: Password sign-in is off.
    """
    require_people_admin(user)
    if not settings.PASSWORD_SIGN_IN:
        raise Conflict(NO_PASSWORDS)
    if role not in ROLES:
        raise UnprocessableRequest(f"The role must be one of: {', '.join(ROLES)}.")
    if days not in LIFETIMES:
        raise UnprocessableRequest("An invitation expires in a day, in 3 days or in a week.")
    label = " ".join(label.split())
    if len(label) > MAX_LABEL_CHARACTERS:
        raise UnprocessableRequest(f"At most {MAX_LABEL_CHARACTERS} characters say whom it is for.")
    token = secrets.token_urlsafe(32)
    with transaction.atomic():
        Invitation.objects.filter(expires_at__lt=now - EXPIRED_INVITATION_RETENTION).delete()
        row = Invitation.objects.create(
            token_hash=hash_api_key(token),
            label=label,
            role=role,
            made_by=user.pk,
            made_at=now,
            expires_at=now + timedelta(days=days),
        )
        record_invitation_event("INVITATION_CREATED", row, person_actor(user), now)
    return row, token


def revoke_invitation(invitation_id: int, *, user: User, now: datetime) -> Invitation:
    """End an invitation before anybody uses it. Raises Forbidden, NotFound, and Conflict where it has ended."""
    require_people_admin(user)
    with transaction.atomic():
        row = Invitation.objects.filter(pk=invitation_id).first()
        if row is None:
            raise NotFound("There is no such invitation.")
        if not list_open_invitations(now).filter(pk=row.pk).update(revoked_at=now):
            raise Conflict("This invitation was used, revoked or has expired.")
        record_invitation_event("INVITATION_REVOKED", row, person_actor(user), now)
    return row


def find_invitation_by_token(token: str, now: datetime) -> Invitation | None:
    """Return the invitation that `token` is good for now, or None."""
    row = list_open_invitations(now).filter(token_hash=hash_api_key(token)).first()
    if row is None or not settings.PASSWORD_SIGN_IN:
        return None
    maker = User.objects.filter(pk=row.made_by).first()
    return row if maker is not None and has_role(maker, ADMIN) else None


def accept_invitation(token: str, user: User, *, address: str, now: datetime) -> User:
    """Use the invitation up and store `user`, whom `users.build_user` built, with its role.

    Raises Conflict for an invitation that is not valid, and for a name in use; the invitation stays good then.
    """
    with transaction.atomic():
        row = find_invitation_by_token(token, now)
        # Only one of two at once gets this far: the second finds it used.
        if row is None or not list_open_invitations(now).filter(pk=row.pk).update(used_at=now):
            raise Conflict(NOT_VALID)
        maker = User.objects.get(pk=row.made_by)
        users.insert_user_with_role(user, role=row.role, actor=person_actor(maker), now=now)
        Invitation.objects.filter(pk=row.pk).update(used_by=user.pk)
        record_invitation_event("INVITATION_USED", row, person_actor(user), now, reason=f"from {address}")
    return user


def begin_passkey_for_invitation(
    token: str, username: str, browser: str, address: str, now: datetime
) -> dict[str, object]:
    """Return what the browser of somebody invited needs to make a passkey.

    Raises Conflict for an invitation that is not valid or a name in use, UnprocessableRequest for a bad name.
    """
    row = find_invitation_by_token(token, now)
    if row is None:
        raise Conflict(NOT_VALID)
    if not username.strip():
        raise UnprocessableRequest("Choose a user name first.")
    user = User(username=User.normalize_username(username.strip()))
    users.validate_user_fields(user)
    require_unused_username(user.username)
    return passkeys.begin_joining_with_passkey(
        build_invitation_passkey_handle(row), user.username, browser, address, now
    )


def accept_invitation_with_passkey(
    token: str, username: str, text: str, *, browser: str, address: str, now: datetime
) -> User:
    """Use the invitation up and make the person, who signs in with the passkey that `text` proves.

    Their password is one that nobody knows: without any, only single sign-on would let them in.

    Raises:
        PasskeyRefused: What was sent proves nothing.
        Conflict: The invitation is not valid, or the name or the passkey is in use.
        UnprocessableRequest: The name is none.
    """
    row = find_invitation_by_token(token, now)
    if row is None:
        raise Conflict(NOT_VALID)
    credential = passkeys.verify_new_passkey_consuming_challenge(text, browser, now)
    user = users.build_user(username.strip(), secrets.token_urlsafe(32))
    require_unused_username(user.username)
    accounts.set_unknown_password_on_unsaved_user(user)
    with transaction.atomic():
        accept_invitation(token, user, address=address, now=now)
        name = passkeys.normalize_passkey_name("", 0)
        passkeys.store_passkey(
            user, credential, name, build_invitation_passkey_handle(row), address=address, now=now
        )
    return user


def require_unused_username(username: str) -> None:
    """Raise Conflict for a name in use, also where only the case of its letters differs, as the form has it."""
    if User.objects.filter(username__iexact=username).exists():
        raise Conflict(f"The name {username!r} is in use.")


def build_invitation_passkey_handle(row: Invitation) -> str:
    """Return by which authenticators know the account that the invitation makes."""
    return passkeys.derive_passkey_user_handle("signalbox.passkey-invitation", row.pk)


def require_people_admin(user: User) -> None:
    if not has_role(user, ADMIN):
        raise Forbidden("Only administrators manage people.")
