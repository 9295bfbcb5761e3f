"""Creation, roles, deactivation and deletion of people. Their passwords and sign-ins are in accounts.

The role is a Django group (coordinator/identity/roles.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from coordinator.actions import deciders, notifications
from coordinator.actions.approvals import person_names
from coordinator.actions.audit import audit
from coordinator.actions.people.open_invitations import list_open_invitations, record_invitation_event
from coordinator.actions.policy import budgets
from coordinator.actions.upkeep import changed_columns
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, person_actor
from coordinator.identity.roles import ADMIN, ROLES, people_with_role
from coordinator.lib import row_versions
from coordinator.models import Invitation, Passkey, ProviderIdentity, RecoveryCode

EDITABLE = ("username", "first_name", "last_name", "email", "is_active", "is_superuser")
SELF_REFUSED = "You cannot delete yourself. Ask another administrator."


def group_role_or_empty(user: User) -> str:
    """Return the highest role that the user's groups give, or an empty text."""
    names = set(user.groups.values_list("name", flat=True)) if user.pk else set()
    return next((role for role in reversed(ROLES) if role in names), "")


def compute_user_version(user: User) -> str:
    """Return the version that an editor of this person has seen."""
    return row_versions.hash_column_values_as_version(
        [row_versions.hash_row_fields_as_version(user, EDITABLE), group_role_or_empty(user)]
    )


def create_user(
    username: str,
    *,
    password: str | None,
    actor: Actor,
    role: str = "",
    now: datetime | None = None,
    **other_columns: Any,
) -> User:
    """Make a person who signs in with `password`, or without one (None) elsewhere.

    `other_columns` are columns of EDITABLE.
    Raises UnprocessableRequest for a bad name, password or role, Conflict for a name in use.
    """
    user = build_user(username, password, **other_columns)
    insert_user_with_role(user, role=role, actor=actor, now=now)
    return user


def build_user(username: str, password: str | None, **other_columns: Any) -> User:
    """Return a person who is not stored yet. Slow on purpose, for the password's sake: call it in no transaction.

    Raises UnprocessableRequest for a bad name or password.
    """
    user = User(username=User.normalize_username(username))
    changed_columns.assign_columns_and_diff(user, other_columns, EDITABLE)
    validate_user_fields(user)
    try:
        if password is not None:
            validate_password(password, user)
    except ValidationError as problem:
        raise UnprocessableRequest(" ".join(problem.messages)) from None
    user.set_password(password)  # None: one that nobody can give
    return user


def insert_user_with_role(user: User, *, role: str, actor: Actor, now: datetime | None) -> None:
    """Store a person of `build_user`. Raises UnprocessableRequest for a bad role, Conflict for a name in use."""
    try:
        with transaction.atomic():
            deciders.bump_decision_rights_version()  # a role gives the right to decide
            user.save(force_insert=True)
            delete_username_references(
                user.username, actor, now
            )  # left by another of this name, whom somebody deleted elsewhere
            move_user_to_role_group(user, role)
            after = {**changed_columns.read_column_values(user, EDITABLE), "role": role}
            record_user_change("USER_CREATED", user, {"after": after}, actor, now)
    except IntegrityError:
        raise Conflict(f"The name {user.username!r} is in use.") from None


def update_user(
    user_id: int,
    changes: Mapping[str, Any],
    *,
    actor: Actor,
    role: str | None = None,
    seen_version: str | None = None,
    keep_an_administrator: bool = True,
    now: datetime | None = None,
) -> User:
    """Change columns of EDITABLE, and the role unless None.

    Raises NotFound, UnprocessableRequest, and Conflict for a stale version, a name in use, or where no administrator
    would be left (unless `keep_an_administrator` is off: somebody else gives and takes roles).
    """
    try:
        with transaction.atomic():
            user = lock_user_and_decision_rights(user_id, seen_version)
            difference = changed_columns.assign_columns_and_diff(user, changes, EDITABLE) or {
                "before": {},
                "after": {},
            }
            had = group_role_or_empty(user)
            if role is not None and role != had:
                move_user_to_role_group(user, role)
                difference["before"]["role"], difference["after"]["role"] = had, role
            if difference["after"]:
                validate_user_fields(user)
                user.save(update_fields=[name for name in difference["after"] if name != "role"])
                if "username" in difference["after"]:
                    before = difference["before"]["username"]
                    notifications.move_notification_settings_to_name(
                        before, user.username, actor=actor, now=now
                    )
                    person_names.rename_person_everywhere(before, user.username)
                if keep_an_administrator:
                    require_remaining_administrator()
                record_user_change("USER_UPDATED", user, difference, actor, now)
                revoke_invitations_unless_admin(user, actor, now)
    except IntegrityError:
        raise Conflict(f"The name {changes.get('username')!r} is in use.") from None
    return user


def delete_user(user_id: int, *, actor: Actor, now: datetime | None = None) -> None:
    """Delete a person; what they did stays in the audit log under their name.

    Raises NotFound, and Conflict for oneself or the last administrator.
    """
    with transaction.atomic():
        user = lock_user_and_decision_rights(user_id)
        if person_actor(user) == actor:
            raise Conflict(SELF_REFUSED)
        before = {**changed_columns.read_column_values(user, EDITABLE), "role": group_role_or_empty(user)}
        for model in (ProviderIdentity, Passkey, RecoveryCode):
            model.objects.filter(user_id=user.pk).delete()
        user.delete()
        delete_username_references(user.username, actor, now)
        budgets.end_person_budgets(user.username, actor=actor, now=now or timezone.now())
        require_remaining_administrator()
        record_user_change("USER_DELETED", user, {"before": before}, actor, now)


def delete_username_references(name: str, actor: Actor, now: datetime | None) -> None:
    """Drop what is kept for a name that nobody has."""
    notifications.delete_notification_settings_of_person(name, actor=actor, now=now)
    person_names.clear_person_name_references(name)


def lock_user_and_decision_rights(user_id: int, seen_version: str | None = None) -> User:
    """Return the person's current row, locked, and lock the decision rights until the transaction ends.

    Raises NotFound, and Conflict where they have changed since `seen`.
    """
    deciders.bump_decision_rights_version()
    # Locked in one order, so that of two administrators who remove each other the second waits and is refused.
    list(people_with_role(ADMIN).order_by("pk").select_for_update())
    user = User.objects.select_for_update().filter(pk=user_id).first()
    if user is None:
        raise NotFound("This person no longer exists.")
    row_versions.require_current_version(compute_user_version(user), seen_version, user.username)
    return user


def move_user_to_role_group(user: User, role: str) -> None:
    """Put the user into the role's group and out of the others'; groups that are no roles stay."""
    if role and role not in ROLES:
        raise UnprocessableRequest(f"The role must be one of: {', '.join(ROLES)}, or none.")
    user.groups.remove(*Group.objects.filter(name__in=ROLES).exclude(name=role))
    if role:
        group, _ = Group.objects.get_or_create(name=role)
        user.groups.add(group)


def validate_user_fields(user: User) -> None:
    try:
        user.clean_fields(exclude=["password"])
    except ValidationError as problem:
        raise UnprocessableRequest(" ".join(problem.messages)) from None


def require_remaining_administrator() -> None:
    """Raise Conflict where nobody would be left who could undo what was just done."""
    if not people_with_role(ADMIN).exists():
        raise Conflict("This would leave no active administrator.")


def revoke_invitations_unless_admin(user: User, actor: Actor, now: datetime | None) -> None:
    """End the open invitations of who is no administrator any more: the role may come back, they do not."""
    if people_with_role(ADMIN).filter(pk=user.pk).exists():
        return
    moment = now or timezone.now()
    reason = f"{user.username} is no administrator any more."
    for row in list_open_invitations(moment).filter(made_by=user.pk).order_by("pk"):
        Invitation.objects.filter(pk=row.pk).update(revoked_at=moment)
        record_invitation_event("INVITATION_REVOKED", row, actor, moment, reason)


def record_user_change(
    event: str, user: User, metadata: dict[str, Any], actor: Actor, now: datetime | None
) -> None:
    audit.record_audit_entry(
        event, actor=actor, target=user.username, result="success", metadata=metadata, now=now
    )
