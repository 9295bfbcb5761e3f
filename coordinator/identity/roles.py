"""The three roles of people, kept as Django groups; each includes the ones before it.

viewer reads · approver also decides requests and edits grants · admin also edits servers, agents, keys, users.
A superuser is an admin. Somebody without a role sees nothing but their own account page.
"""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.db.models import Q, QuerySet

VIEWER, APPROVER, ADMIN = ROLES = ("viewer", "approver", "admin")


def highest_role_of_user(user: AbstractBaseUser | AnonymousUser) -> str | None:
    """Return the highest role of `user`, or None. Cached on the instance: one query a request."""
    if not isinstance(user, User) or not user.is_active:
        return None
    if user.is_superuser:
        return ADMIN
    cached: str | None = getattr(user, "_signalbox_role", "")
    if cached == "":
        names = set(user.groups.values_list("name", flat=True))
        cached = next((role for role in reversed(ROLES) if role in names), None)
        user._signalbox_role = cached  # type: ignore[attr-defined]
    return cached


def has_role(user: AbstractBaseUser | AnonymousUser, least: str) -> bool:
    """Say whether `user` has the role `least` or a higher one."""
    role = highest_role_of_user(user)
    return role is not None and ROLES.index(role) >= ROLES.index(least)


def people_with_role(least: str) -> QuerySet[User]:
    """Return the active people who have the role `least` or a higher one, each once."""
    # By a subquery: rows of a join would come twice, and PostgreSQL does not lock what is made distinct.
    members = Group.objects.filter(name__in=ROLES[ROLES.index(least) :]).values("user")
    return User.objects.filter(Q(is_superuser=True) | Q(pk__in=members), is_active=True)
