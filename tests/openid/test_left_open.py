"""A browser that was left open connects nobody else."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.utils import timezone

from coordinator.models import ProviderIdentity
from tests.openid.conftest import CONNECT, Visitor
from tests.people import PASSWORD, person

pytestmark = pytest.mark.django_db


def test_a_browser_that_was_left_open_connects_nobody_else(visitor: Visitor) -> None:
    """Somebody at bob's browser, eleven minutes later, connects bob's account with an identity of their own."""
    person("approver", "bob")
    form = {"username": "bob", "password": PASSWORD, "new_proof": visitor.secret}
    assert visitor.client.post("/ui/sign-in/", form).status_code == 302
    visitor.provider.person["groups"] = ["ops"]
    with time_machine.travel(timezone.now() + timedelta(minutes=11)):
        to = visitor.set_out(CONNECT)
        if to:
            visitor.come_back(visitor.provider.authorize(to))
    assert not ProviderIdentity.objects.exists()
