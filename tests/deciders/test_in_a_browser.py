"""Who decides, as people use it: an admin says it on the page, and each approver hears of their own requests alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.approvals.test_wait import asked
from tests.browser import Watch
from tests.served import Served

pytestmark = [pytest.mark.browser, pytest.mark.served]
PersonAt = Callable[..., tuple[Page, Watch]]
INBOX = "/ui/approvals/"


@pytest.fixture
def served(one_server: Served) -> Served:
    return one_server.emptied("permission_requests", "deciding_rules", "delegations")


def card(page: Page, target: str) -> Locator:
    return page.locator("article.ask").filter(has_text=target)


def inbox_of(person_at: PersonAt, served: Served, name: str) -> Page:
    page, watch = person_at(served, name)
    watch.expect("htmx:(afterRequest|sendAbort)")  # two signals in a row: the page asks again
    page.goto(INBOX)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    return page


def add_row(page: Page, *, type: str = "", groups: str = "", people: str = "", two: bool = False) -> None:
    """Fill in the row for a new one and save."""
    page.goto("/ui/deciders/")
    row = page.locator(".rules").first.locator("> li").last
    row.get_by_label("Permission type").fill(type)
    if groups:
        row.get_by_label("Groups who may decide").select_option(label=groups)
    if people:
        row.get_by_label("People who may decide").select_option(label=people)
    if two:
        row.get_by_label("Must approve").select_option(label="Two people")
    page.get_by_role("button", name="Save rows").click()
    expect(page.locator("#toasts")).to_contain_text("Rows saved.")


def make_group(page: Page, name: str, *people: str) -> None:
    page.goto("/ui/deciders/")
    new = page.locator("#group-new")
    new.locator("summary").click()
    new.get_by_label("Name").fill(name)
    for one in people:
        new.get_by_label(one, exact=True).check()
    new.get_by_role("button", name="Create group").click()
    expect(page.locator("#toasts")).to_contain_text(f"The group {name} was created")


def test_two_approvers_hear_of_different_requests_live(served: Served, person_at: PersonAt) -> None:
    first, second = (inbox_of(person_at, served, name) for name in ("approver", "approver2"))
    admin, _ = person_at(served, "admin")
    make_group(admin, "Operators", "approver2")
    add_row(admin, type="NetworkAccess", groups="Operators")
    add_row(admin, type="FileWrite", people="approver")
    asked(served, permission_type="NetworkAccess", target_resource="api.net")
    asked(served, permission_type="FileWrite", target_resource="api.file")
    for page, own, others in ((first, "api.file", "api.net"), (second, "api.net", "api.file")):
        expect(card(page, own).get_by_role("button", name="Approve")).to_be_visible()
        expect(card(page, others)).to_have_count(0)
        expect(page.locator("#rail-badge-approvals .badge")).to_contain_text("1")
        expect(page).to_have_title("(1) Approvals · Signalbox")
    first.get_by_role("link", name="All waiting").click()
    expect(card(first, "api.net")).to_contain_text("Waits for: one of Operators.")
    expect(card(first, "api.net")).to_contain_text("You may not decide this.")
    expect(card(first, "api.net").get_by_role("button", name="Approve")).to_have_count(0)
    card(second, "api.net").get_by_role("button", name="Approve").click()
    expect(card(second, "api.net")).to_contain_text("Decided by you")
    expect(card(first, "api.net")).to_contain_text("Approver2 approved it")
    expect(second.locator("#rail-badge-approvals .badge")).to_have_count(0)


def test_a_right_handed_over_on_the_account_page_shows_live_and_ends_live(
    served: Served, person_at: PersonAt
) -> None:
    admin, _ = person_at(served, "admin")
    add_row(admin, people="approver")
    asked(served, target_resource="api.lent")
    receiver = inbox_of(person_at, served, "approver2")
    expect(receiver.locator("#inbox")).to_contain_text("Nothing to decide")
    giver, _ = person_at(served, "approver", timezone_id="Asia/Tokyo")
    giver.goto("/ui/account/")
    part = giver.locator("#delegations")
    expect(part.locator("[data-zone]")).to_have_text("Asia/Tokyo")
    part.get_by_label("Who decides for you").select_option(label="approver2")
    part.get_by_role("button", name="Delegate").click()
    expect(giver.locator("#delegations")).to_contain_text("approver2 decides for approver")
    expect(card(receiver, "api.lent")).to_contain_text("Waits for: approver, or approver2 for approver.")
    card(receiver, "api.lent").get_by_role("button", name="Deny").click()
    expect(card(receiver, "api.lent")).to_contain_text("Decided by you")
    expect(card(receiver, "api.lent")).to_contain_text("(approver2 for approver)")
    asked(served, target_resource="api.later")
    expect(card(receiver, "api.later").get_by_role("button", name="Approve")).to_be_visible()
    giver.get_by_role("button", name="End delegation").click()
    giver.locator("#confirm [value=yes]").click()
    expect(card(receiver, "api.later")).to_contain_text("You may not decide this.")
    expect(card(receiver, "api.later").get_by_role("button", name="Approve")).to_have_count(0)


def test_a_row_without_anybody_tells_the_admin_on_the_card(served: Served, person_at: PersonAt) -> None:
    admin, _ = person_at(served, "admin")
    make_group(admin, "Nobody yet")
    add_row(admin, groups="Nobody yet", two=True)
    expect(admin.get_by_role("alert").first).to_contain_text("names no active approver")
    asked(served, target_resource="api.stuck")
    admin.goto(f"{INBOX}?all=1")
    expect(card(admin, "api.stuck").get_by_role("alert")).to_contain_text("Nobody can approve this")
    expect(card(admin, "api.stuck").get_by_role("button", name="Approve")).to_have_count(0)
    admin.goto("/ui/")
    expect(admin.get_by_role("alert").first).to_contain_text("Change who decides")
