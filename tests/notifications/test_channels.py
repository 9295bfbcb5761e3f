"""Every kind of address has a channel, and the page offers those that people type."""

from __future__ import annotations

import re

import pytest

from coordinator.models import NotificationTarget
from coordinator.notifications.channels import CHANNELS, TYPED


def test_every_kind_has_a_channel() -> None:
    assert set(CHANNELS) == set(NotificationTarget.Kind)


@pytest.mark.django_db
def test_the_form_offers_each_kind_that_people_type(signed_in, settings) -> None:
    settings.EMAIL_HOST = ""
    page = signed_in().get("/ui/approvals/notifications/").content.decode()
    [form] = re.findall(r'<select name="kind">(.*?)</select>', page, re.S)
    offered = re.findall(r'<option value="(\w+)">\s*(.*?)\s*</option>', form)
    unset = {"email": " (no mail server is set yet)"}
    assert offered == [(str(kind), CHANNELS[kind].choice + unset.get(kind, "")) for kind in TYPED]
