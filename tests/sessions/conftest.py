"""People of each role, signed in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client


@pytest.fixture
def sign_in(db: None) -> Callable[[str], Client]:
    """A function that returns a client signed in with a role."""

    def make(role: str) -> Client:
        user = User.objects.create_user(role, password="x")
        user.groups.add(Group.objects.get(name=role))
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def viewer(sign_in: Callable[[str], Client]) -> Client:
    """A client signed in as a viewer."""
    return sign_in("viewer")
