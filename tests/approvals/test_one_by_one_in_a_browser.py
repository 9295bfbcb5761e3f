"""Deciding at a glance: a list with a pane, one request a screen, and swipes that can be taken back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.test_in_a_browser import PersonAt, at_inbox, card, served
from tests.approvals.test_read_first_in_a_browser import LONG, status
from tests.approvals.test_wait import asked
from tests.browser import PHONE, confirm_by_password
from tests.served import Served

__all__ = ["served"]
pytestmark = [pytest.mark.browser, pytest.mark.served]
ONE = "/ui/approvals/one-by-one/"
WIDE = {"viewport": {"width": 1440, "height": 900}}
BEFORE_BARS = 844 - 56  # the phone's bar lies at the foot


def swipe(page: Page, dx: int) -> None:
    """Move one finger sideways over the card."""
    client = page.context.new_cdp_session(page)
    x, y = (60, 230) if dx > 0 else (330, 230)
    for kind, at in (("touchStart", 0), ("touchMove", dx / 3), ("touchMove", dx)):
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x + at, "y": y}]})
    client.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


# The moment in which a swipe can be taken back ends when the test says so.
HELD = """(() => {
  const [set, clear] = [window.setTimeout, window.clearTimeout];
  window.setTimeout = (call, after, ...more) => after === 4000 ? (window.held = call, -1) : set(call, after, ...more);
  window.clearTimeout = (id) => id === -1 ? (window.held = null) : clear(id);
})()"""


def one_at_a_time(person_at: PersonAt, served: Served) -> Page:
    page, _ = person_at(served, "approver", **PHONE)
    page.add_init_script(HELD)
    page.goto(ONE)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    return page


def test_a_first_card_with_both_buttons_fits_a_phone(served: Served, person_at: PersonAt) -> None:
    for number in range(3):
        asked(served, target_resource=f"api.{number}", tool_name="Bash", tool_input={"command": "git push"})
    page = at_inbox(person_at, served, **PHONE)
    for name in ("Approve", "Deny"):
        box = page.get_by_role("button", name=name).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= BEFORE_BARS


def test_five_cards_fit_a_desktop(served: Served, person_at: PersonAt) -> None:
    for number in range(6):
        arguments = {"repo": "acme/shop", "number": number}
        asked(
            served, target_resource=f"acme/shop#{number}", tool_name="mcp__gh__comment", tool_input=arguments
        )
    page = at_inbox(person_at, served, **WIDE)
    box = page.locator("article.ask").nth(4).bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 900


def test_the_pane_follows_the_selection_and_keys_pass_what_is_decided(
    served: Served, person_at: PersonAt
) -> None:
    for name in ("api.1", "api.2", "api.3"):
        asked(served, target_resource=name, justification=f"Because of {name}.")
    page = at_inbox(person_at, served, **WIDE)
    panes = page.locator(".ask-pane:visible")
    expect(panes).to_contain_text("Because of api.1.")
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(card(page, "api.1")).to_contain_text("Decided by you")
    expect(panes).to_contain_text("Because of api.2.")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(panes).to_contain_text("Because of api.3.")
    page.keyboard.press("k")
    page.keyboard.press("k")
    expect(page.locator(".ask.selected")).to_contain_text("api.2")
    card(page, "api.3").locator("h2 a").click()
    expect(panes).to_contain_text("Because of api.3.")
    assert page.url.endswith("/ui/approvals/")


def test_on_a_phone_all_of_a_long_call_is_opened_and_read_before_it_is_approved(
    served: Served, person_at: PersonAt
) -> None:
    request_id = asked(served, target_resource="api.long", tool_input={"command": LONG})
    page = at_inbox(person_at, served, **PHONE)
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_have_attribute("aria-disabled", "true")
    expect(page.locator(".excerpts mark")).to_be_visible()
    expect(page.locator(".code.tall")).to_be_hidden()
    page.get_by_role("button", name="Read all 301 lines").tap()
    expect(page.locator(".code.tall")).to_be_visible()
    expect(approve).to_have_attribute("aria-disabled", "true")
    page.locator(".code.tall").evaluate(
        "box => { box.scrollTop = box.scrollHeight; box.scrollIntoView({block: 'center'}); }"
    )
    expect(approve).to_have_attribute("aria-disabled", "false")
    assert status(served, request_id) == "pending"


def test_one_request_a_screen_advances_by_itself(served: Served, person_at: PersonAt) -> None:
    ids = [asked(served, target_resource=f"api.{number}") for number in range(3)]
    page = one_at_a_time(person_at, served)
    expect(page.locator("#one")).to_contain_text("3 left")
    page.get_by_role("button", name="Approve").tap()
    expect(page.locator("#one")).to_contain_text("2 left")
    expect(page.locator("article h2")).to_contain_text("api.1")
    page.get_by_role("link", name="Skip", exact=True).tap()
    expect(page.locator("article h2")).to_contain_text("api.2")
    page.keyboard.press("d")
    expect(page.locator("article h2")).to_contain_text("api.1")
    assert [status(served, name) for name in ids] == ["approved", "pending", "denied"]


def test_a_swipe_is_sent_after_a_moment_in_which_it_is_taken_back(
    served: Served, person_at: PersonAt
) -> None:
    ids = [asked(served, target_resource=f"api.{number}") for number in range(2)]
    page = one_at_a_time(person_at, served)
    swipe(page, 200)
    expect(page.locator("#take-back")).to_contain_text("Approving")
    page.get_by_role("button", name="Take back").tap()
    expect(page.locator("#take-back")).to_be_hidden()
    assert page.evaluate("window.held") is None
    assert status(served, ids[0]) == "pending"
    swipe(page, -200)
    expect(page.locator("#take-back")).to_contain_text("Denying")
    page.evaluate("window.held()")
    expect(page.locator("article h2")).to_contain_text("api.1")
    assert [status(served, name) for name in ids] == ["denied", "pending"]


def test_a_swipe_approves_nothing_that_was_not_read_or_has_changed(
    served: Served, person_at: PersonAt
) -> None:
    long = asked(served, target_resource="api.long", tool_input={"command": LONG})
    page = one_at_a_time(person_at, served)
    swipe(page, 200)
    expect(page.locator("#toasts")).to_contain_text("Nothing was approved. Scroll to the end")
    expect(page.locator("#take-back")).to_be_hidden()
    served.sql("UPDATE permission_requests SET status = 'withdrawn'")
    short = asked(served, target_resource="api.short")
    page.goto(ONE)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    swipe(page, 200)
    expect(page.locator("#take-back")).to_be_visible()
    served.sql("UPDATE permission_requests SET target_resource = 'other' WHERE request_id = ?", (short,))
    expect(page.locator("#toasts")).to_contain_text("The request has changed. Nothing was sent.")
    assert page.evaluate("window.held") is None
    assert [status(served, name) for name in (long, short)] == ["withdrawn", "pending"]


def test_without_a_script_one_follows_the_other(served: Served, person_at: PersonAt) -> None:
    ids = [asked(served, target_resource=f"api.{number}") for number in range(2)]
    page, watch = person_at(served, "approver", java_script_enabled=False)
    watch.expect("403")
    page.goto(ONE)
    page.get_by_role("button", name="Deny").click()
    confirm_by_password(page, "approver")
    expect(page).to_have_title("Approvals, one at a time · Signalbox")
    expect(page.locator("article h2")).to_contain_text("api.1")
    assert [status(served, name) for name in ids] == ["denied", "pending"]


STOPPABLE = {"plugin_id": "claude-code", "metadata": {"can_stop_turn": True}}


def stops_turn(served: Served, request_id: str) -> bool:
    rows = served.sql("SELECT answer FROM permission_context WHERE request_id = ?", (request_id,))
    return "stops_turn" in str(rows[0][0])


def test_a_denial_that_stops_the_turn_is_offered_where_the_agent_can_be_stopped(
    served: Served, person_at: PersonAt
) -> None:
    first, second = (asked(served, target_resource=name, **STOPPABLE) for name in ("first.one", "second.one"))
    other = asked(served, target_resource="third.one", plugin_id="claude-code")
    page = one_at_a_time(person_at, served)
    page.add_init_script(
        "performance.now = ((now) => () => (now += 1000))(0)"
    )  # a card may be decided at once
    page.goto(ONE)
    expect(page.locator("article h2")).to_contain_text("first.one")
    button = page.get_by_role("button", name="Deny and stop the turn")
    box = button.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390
    page.get_by_placeholder("Reason (optional)").fill("It loops.")
    button.tap()
    expect(page.get_by_text("Denied, turn ended.")).to_be_visible()
    expect(page.locator("article h2")).to_contain_text("second.one")
    swipe(page, -200)
    expect(page.locator("#take-back")).to_contain_text("Denying")
    page.evaluate("window.held()")  # a swipe denies this call alone
    expect(page.locator("article h2")).to_contain_text("third.one")
    expect(button).to_have_count(0)
    page.keyboard.press("E")
    page.keyboard.press("d")
    expect(page.locator("#one")).to_contain_text("Nothing left to decide")
    assert [status(served, name) for name in (first, second, other)] == ["denied"] * 3
    assert [stops_turn(served, name) for name in (first, second, other)] == [True, False, False]


def test_a_key_denies_and_stops_the_turn_of_the_selected_request(served: Served, person_at: PersonAt) -> None:
    request_id = asked(served, target_resource="api.1", **STOPPABLE)
    page = at_inbox(person_at, served, **WIDE)
    page.keyboard.press("j")
    page.keyboard.press("E")
    expect(card(page, "api.1")).to_contain_text("turn ended")
    assert stops_turn(served, request_id)
