"""On a phone the request that waits longest is decided on the overview, with one tap and without scrolling."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Request, expect

from tests.approvals.test_in_a_browser import PersonAt, served
from tests.approvals.test_read_first_in_a_browser import LONG, status
from tests.approvals.test_wait import asked
from tests.browser import PHONE
from tests.served import Served

__all__ = ["served"]
pytestmark = [pytest.mark.browser, pytest.mark.served]
# A press just after something moved counts for nothing: here every press comes seconds later.
SLOW_HAND = "performance.now = ((now) => () => (now += 1000))(0)"
ABOVE_BAR = 844 - 56  # the phone's bar lies at the foot


def open_overview(person_at: PersonAt, served: Served, name: str = "approver", **options: object) -> Page:
    page, _ = person_at(served, name, **options)
    page.add_init_script(SLOW_HAND)
    page.goto("/ui/")
    return page


def test_one_tap_approves_and_the_next_request_follows(served: Served, person_at: PersonAt) -> None:
    first, second = (
        asked(
            served,
            target_resource=f"api.{number}",
            tool_name="Bash",
            tool_input={"command": f"git push {number}"},
        )
        for number in (1, 2)
    )
    page = open_overview(person_at, served, **PHONE)
    card = page.locator(".decide-here .ask")
    expect(card).to_contain_text("git push 1")
    for name in ("Approve", "Deny"):
        box = card.get_by_role("button", name=name).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= ABOVE_BAR
    card.get_by_role("button", name="Approve").tap()
    expect(card).to_contain_text("git push 2")
    assert (status(served, first), status(served, second)) == ("approved", "pending")


def test_a_request_that_arrives_is_shown_and_the_place_is_empty_before(
    served: Served, person_at: PersonAt
) -> None:
    page = open_overview(person_at, served, **PHONE)
    expect(page.locator("#one")).to_be_attached()
    expect(page.locator(".decide-here")).to_be_hidden()
    asked(served, target_resource="api.new")
    expect(page.locator(".decide-here .ask")).to_contain_text("api.new")


def test_a_long_call_is_read_to_its_end_before_it_is_approved(served: Served, person_at: PersonAt) -> None:
    request_id = asked(served, target_resource="api.long", tool_input={"command": LONG})
    page = open_overview(person_at, served, **PHONE)
    approve = page.locator(".decide-here").get_by_role("button", name="Approve")
    expect(approve).to_have_attribute("aria-disabled", "true")
    approve.tap(force=True)
    assert status(served, request_id) == "pending"


@pytest.mark.parametrize(
    ("name", "options"), [("viewer", PHONE), ("approver", {})], ids=["viewer", "desktop"]
)
def test_nobody_else_is_asked(
    served: Served, person_at: PersonAt, name: str, options: dict[str, object]
) -> None:
    asked(served, target_resource="api.1")
    page, _ = person_at(served, name, **options)
    sent: list[str] = []

    def note(request: Request) -> None:
        sent.append(request.url)

    page.on("request", note)
    page.goto("/ui/")
    page.wait_for_load_state("networkidle")
    assert sent
    assert not [url for url in sent if "one-by-one" in url]
    expect(page.locator(".decide-here")).to_be_hidden() if name == "approver" else expect(
        page.locator(".decide-here")
    ).to_have_count(0)
