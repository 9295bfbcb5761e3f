"""The three roles of people, kept as Django groups; each includes the ones before it.

viewer reads · approver also decides requests and edits grants · admin also edits servers, agents, keys, users.
A superuser is an admin. Somebody without a role sees nothing but their own account page.
"""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User

VIEWER, APPROVER, ADMIN = ROLES = ("viewer", "approver", "admin")


def role_of(user: AbstractBaseUser | AnonymousUser) -> str | None:
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
    role = role_of(user)
    return role is not None and ROLES.index(role) >= ROLES.index(least)
