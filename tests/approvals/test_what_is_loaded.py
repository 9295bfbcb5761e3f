"""What pages and jobs read of many requests whose inputs are large: what they show, and no more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.sessions import tool_calls
from coordinator.models import PermissionRequest, PluginSetting, Session, fields
from tests.approvals.factories import asked, person

pytestmark = pytest.mark.django_db

REQUESTS, LARGE = 12, 200_000
ALLOWED = LARGE  # bytes of JSON that may be decoded: less than any two of the inputs


@pytest.fixture
def decoded_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the JSON columns that are decoded from here on."""
    sizes: list[int] = []
    decode = fields.decode_stored_json

    def decode_and_note(text: str) -> Any:
        sizes.append(len(text))
        return decode(text)

    monkeypatch.setattr(fields, "decode_stored_json", decode_and_note)
    return sizes


@pytest.fixture
def requests(decoded_bytes: list[int]) -> list[PermissionRequest]:
    """Large requests of one session, half of them denied a moment ago."""
    now = timezone.now() - timedelta(minutes=1)
    PluginSetting.objects.create(plugin_id="mind.x")
    Session.objects.create(session_id="ses_1", status="finished", created_at=now)
    rows = [
        asked(
            now=now,
            session_id="ses_1",
            target_resource=f"target {number}",
            tool_input={"command": f"{number} " + "x" * LARGE},
            metadata={"tool_use_id": f"toolu_{number}", "more": "y" * LARGE},
        )
        for number in range(REQUESTS)
    ]
    decider = person("bob")
    for row in rows[::2]:
        approvals.decide_request(row.request_id, person=decider, verdict="denied", now=timezone.now())
    decoded_bytes.clear()
    return rows


@pytest.mark.parametrize(
    "address",
    [
        "/ui/",
        "/ui/approvals/history/",
        "/ui/approvals/statistics/",
        "/ui/plugins/of/mind.x/",
        "/ui/deciders/",
        "/ui/sessions/ses_1/",
    ],
)
def test_a_page_that_lists_requests_reads_no_large_input(
    requests: list[PermissionRequest], decoded_bytes: list[int], admin_client: Client, address: str
) -> None:
    response = admin_client.get(address)
    assert response.status_code == 200
    assert sum(decoded_bytes) < ALLOWED


def test_arranging_requests_reads_no_large_input(
    requests: list[PermissionRequest], decoded_bytes: list[int]
) -> None:
    names = [row.request_id for row in requests[1::2]]
    alice = person("alice")
    now = timezone.now()
    assert approvals.snooze_requests_for_person(
        names, now + timedelta(hours=1), person=alice, now=now
    ) == len(names)
    assert sum(decoded_bytes) < ALLOWED


def test_looking_for_an_edited_call_reads_no_large_input(
    requests: list[PermissionRequest], decoded_bytes: list[int]
) -> None:
    PermissionRequest.objects.filter(status="denied").update(status="approved")
    assert tool_calls.find_edited_input_call_id("mind.x", "ses_1", "Bash", {"command": "make"}) is None
    assert sum(decoded_bytes) < ALLOWED
