"""Whose session cookie opens a stream: an active person's with a role."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from coordinator.edge.http import auth
from coordinator.errors import Forbidden, Unauthorized
from tests.approvals.factories import person

pytestmark = pytest.mark.django_db


def viewer_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return auth.require_viewer_of_login_session(str(client.session.session_key)).role


def test_a_person_with_a_role_is_a_viewer() -> None:
    assert viewer_of(person("ann", "viewer")) == "viewer"


def test_a_person_without_a_role_opens_nothing() -> None:
    with pytest.raises(Forbidden):
        viewer_of(person("ann", None))


def test_a_person_who_was_switched_off_opens_nothing() -> None:
    user, client = person("ann", "viewer"), Client()
    client.force_login(user)
    User.objects.filter(pk=user.pk).update(is_active=False)
    with pytest.raises(Unauthorized):
        auth.require_viewer_of_login_session(str(client.session.session_key))
