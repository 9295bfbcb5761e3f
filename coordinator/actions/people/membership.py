"""Administrators' changes of accounts on the page People: role, sign-out, deactivation."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.notifications import push
from coordinator.actions.people import users
from coordinator.actions.people.invitations import require_people_admin
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import person_actor
from coordinator.identity.roles import ADMIN
from coordinator.identity.session_store import hash_session_key, list_session_ids_of_person

NOT_YOURSELF = "You cannot change your own role or deactivate yourself. Ask another administrator."


def change_person_role(user_id: int, role: str, *, by: User, seen_version: str, now: datetime) -> User:
    """Give a person a role, or none ("").

    Raises Forbidden, NotFound, UnprocessableRequest, and Conflict for oneself, a stale version, or where no
    administrator would be left.
    """
    require_people_admin(by)
    refuse_change_of_own_account(user_id, by)
    # A superuser is an administrator whatever the role says.
    changes = {} if role == ADMIN else {"is_superuser": False}
    return users.update_user(
        user_id, changes, role=role, actor=person_actor(by), seen_version=seen_version, now=now
    )


def deactivate_account_and_end_sessions(user_id: int, *, by: User, now: datetime) -> User:
    """Switch an account off and end its sessions. Raises as `change_person_role` does."""
    require_people_admin(by)
    refuse_change_of_own_account(user_id, by)
    with transaction.atomic():
        user = users.update_user(user_id, {"is_active": False}, actor=person_actor(by), now=now)
        end_person_sessions_and_devices(user, by=by, now=now)
    return user


def reactivate_person(user_id: int, *, by: User, now: datetime) -> User:
    """Switch an account on again. Raises Forbidden and NotFound."""
    require_people_admin(by)
    return users.update_user(user_id, {"is_active": True}, actor=person_actor(by), now=now)


def sign_out_person_everywhere(user_id: int, *, by: User, now: datetime) -> tuple[User, int]:
    """End a person's sessions and devices; return the person and how many sessions ended.

    Raises Forbidden and NotFound.
    """
    require_people_admin(by)
    user = User.objects.filter(pk=user_id).first()
    if user is None:
        raise NotFound("This person no longer exists.")
    return user, end_person_sessions_and_devices(user, by=by, now=now)


def end_person_sessions_and_devices(
    user: User, *, by: User, now: datetime, except_session: str | None = None
) -> int:
    """End the sessions of `user` and the push messages to all their devices; return how many sessions ended.

    `except_session` is the key of the session that goes on: their own, where they sign out all others.
    """
    with transaction.atomic():
        keys = set(list_session_ids_of_person(user.pk))
        if except_session is not None:
            keys.discard(hash_session_key(except_session))
        ended, _ = Session.objects.filter(pk__in=keys).delete()
        for target in push.find_push_devices(user):
            push.mark_push_device_ended(target, f"signed out by {by.username}", now)
        audit.record_audit_entry(
            "PERSON_SIGNED_OUT",
            actor=person_actor(by),
            target=user.username,
            result="success",
            metadata={"sessions": ended},
            now=now,
        )
    return ended


def refuse_change_of_own_account(user_id: int, by: User) -> None:
    if user_id == by.pk:
        raise Conflict(NOT_YOURSELF)
