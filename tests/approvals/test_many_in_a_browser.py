"""Many requests as a person clears them: chosen, decided with one confirmation, put off, allowed for good."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Request, expect

from tests.approvals.test_wait import BODY, URL, asked
from tests.browser import PHONE, Watch
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import rules
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = [pytest.mark.browser, pytest.mark.served]
PersonAt = Callable[..., tuple[Page, Watch]]
INBOX = "/ui/approvals/"


@pytest.fixture
def served(one_server: Served) -> Served:
    """One server for all tests here; each finds an empty inbox."""
    return one_server.emptied("permission_requests")


def at_inbox(person_at: PersonAt, served: Served, name: str = "approver", **options: Any) -> Page:
    page, _ = person_at(served, name, **options)
    page.goto(INBOX)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    return page


def card(page: Page, target: str) -> Locator:
    return page.locator("article.ask").filter(has_text=target)


def some(served: Served, number: int, **changes: Any) -> list[str]:
    return [asked(served, target_resource=f"api.{one}", **changes) for one in range(number)]


def statuses(served: Served) -> list[str]:
    return sorted(row[0] for row in served.sql("SELECT status FROM permission_requests"))


def twenty_of_three_kinds(served: Served) -> None:
    for number in range(8):
        asked(served, tool_name="Bash", tool_input={"command": f"make part-{number}"}, agent_id="builder")
    for number in range(6):
        edit = {"file_path": f"/srv/shop/{number}.py", "old_string": "a = 1\n", "new_string": "a = 2\n"}
        asked(served, tool_name="Edit", tool_input=edit, session_id=f"ses_{number:012x}")
    for number in range(6):
        asked(served, permission_type="NetworkAccess", target_resource=f"host-{number}.example")


def read_to_the_end(page: Page) -> None:
    """Scroll through all that the question about several requests shows, as Approve waits for."""
    page.locator("#set li").last.wait_for()
    for box in page.locator("#set .set-gist, #set .asked-value").all():
        box.evaluate("box => { box.scrollTop = box.scrollHeight; box.scrollIntoView({block: 'end'}); }")
    page.locator("#set .set-list").evaluate("list => { list.scrollTop = list.scrollHeight; }")


def test_an_approver_clears_twenty_of_three_kinds_within_a_minute_on_one_page(
    served: Served, person_at: PersonAt
) -> None:
    twenty_of_three_kinds(served)
    page, _ = person_at(served, "approver")
    opened: list[str] = []

    def note(request: Request) -> None:
        if request.is_navigation_request():
            opened.append(request.url)

    page.on("request", note)
    began = time.monotonic()
    page.goto(INBOX)
    page.get_by_label("Group by", exact=True).select_option("tool")
    lanes = page.locator(".lane")
    expect(lanes).to_have_count(3)
    bash, edits = lanes.filter(has_text="make part-0"), lanes.filter(has_text="/srv/shop/0.py")
    bash.get_by_role("button", name="Approve group").click()
    expect(page.locator("#set li")).to_have_count(8)
    read_to_the_end(page)
    page.locator("#set").get_by_role("button", name="Approve 8 requests").click()
    expect(page.locator("#toasts")).to_contain_text("Approved 8 requests.")
    expect(lanes).to_have_count(2)
    edits.get_by_role("button", name="Deny group").click()
    page.locator("#set").get_by_placeholder("Reason for all").fill("Not today")
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("Denied 6 requests.")
    expect(lanes).to_have_count(1)
    page.keyboard.press("*")
    page.keyboard.press("A")
    read_to_the_end(page)
    page.locator("#set").get_by_role("button", name="Approve 6 requests").click()
    expect(page.locator("#inbox")).to_contain_text("Nothing to decide")
    took = time.monotonic() - began
    assert len(opened) == 1, opened
    assert took < 60
    assert statuses(served) == [*["approved"] * 14, *["denied"] * 6]


def test_what_is_chosen_open_and_focused_survives_what_arrives(served: Served, person_at: PersonAt) -> None:
    some(served, 2)
    page = at_inbox(person_at, served)
    card(page, "api.0").get_by_role("checkbox").check()
    page.locator("#arrange-filters summary").click()
    page.locator("#arrange-marked").focus()
    card(page, "api.1").locator("h2 a").click()  # opens it in the pane
    card(page, "api.1").locator(".ask-tool summary").first.click()
    expect(page.locator("#choose")).to_contain_text("1 chosen")
    page.locator("#arrange-marked").focus()
    asked(served, target_resource="api.later")
    expect(card(page, "api.later")).to_be_visible()
    expect(card(page, "api.0").get_by_role("checkbox")).to_be_checked()
    expect(page.locator("#arrange-filters")).to_have_attribute("open", "")
    expect(card(page, "api.1").get_by_role("button", name="1 hour")).to_be_visible()
    expect(page.locator("#arrange-marked")).to_be_focused()
    expect(page.locator("#choose")).to_contain_text("1 chosen")


def test_who_joins_a_chosen_card_was_not_chosen(served: Served, person_at: PersonAt) -> None:
    asked(served, target_resource="api.same", session_id="ses_1")
    page = at_inbox(person_at, served)
    card(page, "api.same").get_by_role("checkbox").check()
    asked(served, target_resource="api.same", session_id="ses_2")
    expect(card(page, "api.same")).to_contain_text("2 identical requests")
    page.keyboard.press("A")
    page.locator("#set").get_by_role("button", name="Approve 1 request").click()
    expect(page.locator("#toasts")).to_contain_text("Approved 1 request.")
    assert statuses(served) == ["approved", "pending"]


def test_what_somebody_else_decides_under_the_open_question_is_told(
    served: Served, person_at: PersonAt
) -> None:
    some(served, 3)
    page, other = at_inbox(person_at, served), at_inbox(person_at, served, "approver2")
    page.keyboard.press("*")
    page.keyboard.press("A")
    expect(page.locator("#set li")).to_have_count(3)
    card(other, "api.1").get_by_role("button", name="Deny").click()
    expect(card(other, "api.1")).to_contain_text("Decided by you")
    page.locator("#set").get_by_role("button", name="Approve 3 requests").click()
    expect(page.locator("#set")).to_contain_text("Approved 2 requests. 1 was not decided.")
    expect(page.locator("#set")).to_contain_text("approver2 denied it")
    page.locator("#set").get_by_role("link", name="Close").click()
    expect(page.locator("#set")).to_be_hidden()
    assert statuses(served) == ["approved", "approved", "denied"]


def test_the_keyboard_chooses_one_a_range_and_all(served: Served, person_at: PersonAt) -> None:
    some(served, 5)
    page = at_inbox(person_at, served)
    chosen = page.locator("[data-choose]:checked")
    for key in "jxjjX":
        page.keyboard.press(key)
    expect(chosen).to_have_count(3)
    page.keyboard.press("x")
    expect(chosen).to_have_count(2)
    page.keyboard.press("*")
    expect(chosen).to_have_count(5)
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(0)
    expect(page.locator("#choose")).to_be_hidden()


def test_what_one_snoozes_leaves_their_page_alone_and_who_takes_one_is_seen_by_all(
    served: Served, person_at: PersonAt
) -> None:
    some(served, 2)
    page, other = at_inbox(person_at, served), at_inbox(person_at, served, "approver2")
    page.keyboard.press("j")
    page.keyboard.press("s")
    page.get_by_role("button", name="1 hour").click()
    expect(page.locator("article.ask")).to_have_count(1)
    expect(page.locator("#inbox")).to_contain_text("You snoozed 1 request")
    expect(other.locator("article.ask")).to_have_count(2)
    expect(page.locator(".ask.selected")).to_contain_text("api.1")
    page.keyboard.press("t")
    expect(card(other, "api.1")).to_contain_text("for approver")
    page.get_by_role("link", name="Show", exact=True).click()
    expect(card(page, "api.0")).to_contain_text("snoozed, back in")
    page.get_by_role("button", name="Back to inbox").click()
    expect(page.locator("#toasts")).to_contain_text("1 request back in your inbox.")


def test_always_allowing_a_call_frees_it_and_the_next_without_asking(
    served: Served, person_at: PersonAt
) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask", "wait_seconds": 100})
    claude, push = Claude(served), {"command": "git push origin main"}
    claude.prompt("Push it.")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(claude.call, "Bash", push)
        page = at_inbox(person_at, served)
        card(page, "git push origin main").get_by_role("link", name="Always allow this").click()
        expect(page.locator(".always-offer")).to_contain_text("New rule 1")
        page.get_by_role("button", name="Save rule and approve").click()
        expect(page.locator("#toasts")).to_contain_text("Rule 1 allows such calls from now on.")
        assert call.result(PATIENCE).outcome == "ran"
    assert claude.call("Bash", push).outcome == "ran"
    assert statuses(served) == ["approved"]
    rules(served)


def test_on_a_phone_the_bar_is_at_the_foot_and_a_thumb_hits(served: Served, person_at: PersonAt) -> None:
    asked(served, tool_name="Bash", tool_input={"command": "rm -rf " + "very-long-name/" * 40})
    page = at_inbox(person_at, served, **PHONE)
    page.locator(".ask-choose").tap()
    bar = page.locator("#choose")
    for name in ("Approve chosen", "Deny chosen", "Assign to me", "Snooze 1 h"):
        box = bar.get_by_role("button", name=name).bounding_box()
        assert box is not None
        assert box["height"] >= 44
    place = bar.bounding_box()
    assert place is not None
    assert place["y"] + place["height"] > 700
    choose = page.locator(".ask-choose").bounding_box()
    assert choose is not None
    assert min(choose["width"], choose["height"]) >= 44
    bar.get_by_role("button", name="Approve chosen").tap()
    expect(page.locator("#set")).to_contain_text("Deletes files")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert (
        page.evaluate(
            "document.querySelector('#set').scrollWidth - document.querySelector('#set').clientWidth"
        )
        <= 0
    )
    read_to_the_end(page)
    page.locator("#set").get_by_role("button", name="Approve 1 request").tap()
    expect(page.locator("#inbox")).to_contain_text("Nothing to decide")


def test_a_card_on_which_over_a_hundred_wait_is_snoozed_and_leaves(
    served: Served, person_at: PersonAt
) -> None:
    for number in range(60):  # of two keys: each may have a hundred waiting
        for key in ("agent", "runner"):
            body = BODY | {"target_resource": "api.same", "session_id": f"ses_{number:012x}"}
            served.client(key).post(URL, json=body).raise_for_status()
    asked(served, target_resource="api.other")
    page = at_inbox(person_at, served)
    same = card(page, "api.same")
    same.get_by_text("Snooze", exact=True).click()
    same.get_by_role("button", name="1 hour").click()
    expect(page.locator("#toasts")).to_contain_text("120 requests snoozed.")
    expect(same).to_have_count(0)
    expect(card(page, "api.other")).to_be_visible()
    asked(served, target_resource="api.third")
    expect(card(page, "api.third")).to_be_visible()
