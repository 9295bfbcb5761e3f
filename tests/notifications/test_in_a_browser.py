"""The page by which people say how they are told, on a phone, with a service that a real server sends to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.approvals.test_wait import asked
from tests.browser import PHONE
from tests.notifications.receivers import Receiver
from tests.served import Served

pytestmark = [pytest.mark.browser, pytest.mark.served]
PAGE = "/ui/approvals/notifications/"


def test_a_newcomer_adds_a_service_on_a_phone_and_hears_of_a_request(
    serve: Callable[..., Served], person_at: Callable[..., Any], receiver: Receiver
) -> None:
    served = serve(workers=1, SIGNALBOX_WEBHOOK_NETWORKS="127.0.0.1")
    page, _ = person_at(served, "approver", timezone_id="Asia/Tokyo", **PHONE)
    page.goto(PAGE)
    page.get_by_text("What is the address of my service?").click()
    expect(page.get_by_text("Talk to @BotFather")).to_be_visible()
    away = page.get_by_role("region", name="When you are away")
    away.get_by_label("Address").fill(f"ntfy://127.0.0.1:{receiver.server.server_port}/phone-of-mine")
    away.get_by_label("Name").fill("My phone")
    away.get_by_role("button", name="Add address").click()
    away.get_by_role("button", name="Send a test").click()
    expect(page.get_by_text("A test is being sent")).to_be_visible()
    receiver.wait_for(1)
    expect(page.get_by_role("region", name="Sent messages")).to_contain_text(
        "answered 200"
    )  # without a reload
    request_id = asked(served)
    receiver.wait_for(2)
    test, told = (json.loads(body) for _, body in receiver.came)
    assert test["title"] == "Signalbox: a test"
    assert request_id in told["message"]
    page.goto(PAGE)
    expect(page.get_by_label("Time zone")).to_have_value("Asia/Tokyo")
    page.get_by_role("button", name="Save quiet hours").click()
    expect(page.get_by_text("Quiet from 22:00 to 07:00, Asia/Tokyo.")).to_be_visible()
    expect(page.get_by_role("button", name="Remove quiet hours")).to_be_visible()
    expect(page.get_by_text("answered 200").first).to_be_visible()
    assert "phone-of-mine" not in page.content()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
