"""People for tests of pages: by role, and clients that are signed in as them."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.test import Client

PASSWORD = "correct-horse-7"


def person(role: str | None, name: str | None = None) -> User:
    """Return a new person with a role, or without one; named after the role unless told otherwise."""
    user = User.objects.create_user(name or role or "newcomer", password=PASSWORD)
    if role:
        user.groups.add(Group.objects.get(name=role))
    return user


def signed_in(role: str | None, **options: bool) -> Client:
    """Return a client that is signed in as a new person with that role."""
    client = Client(**options)
    client.force_login(person(role))
    return client
