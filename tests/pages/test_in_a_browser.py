from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect

from tests.browser import PHONE, Watch
from tests.served import PEOPLE, Served, Template, running

pytestmark = [pytest.mark.browser, pytest.mark.served]
PersonAt = Callable[..., tuple[Page, Watch]]
INTO_SESSIONS = "INSERT INTO sessions (session_id, status, created_at) VALUES (?, ?, ?)"


PLACES = (
    "/ui/",
    "/ui/account/",
    "/ui/account/password/",
    "/ui/style/",
    "/admin/",
    "/admin/auth/user/",
    "/admin/auth/user/add/",
    "/admin/auth/user/1/change/",
    "/api/docs",
)


@pytest.fixture(scope="module")
def served(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests here: none of them minds the rows of another."""
    with running(served_template, tmp_path_factory.mktemp("pages") / "server") as server:
        yield server


@pytest.mark.parametrize("place", ["/ui/brake/", "/ui/keys/", "/ui/people/"])
def test_on_a_phone_a_thumb_hits_each_of_a_field_s_choices(
    served: Served, person_at: PersonAt, place: str
) -> None:
    page, _ = person_at(served, "admin", **PHONE)
    page.goto(place)
    choices = page.locator("main fieldset label").all()
    assert len(choices) >= 3
    assert all((box := one.bounding_box()) is not None and box["height"] >= 44 for one in choices)


def add_session(served: Served, session_id: str) -> None:
    served.sql(INTO_SESSIONS, (session_id, "running", datetime.now(UTC).isoformat()))


def test_the_form_signs_somebody_in(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, None)
    page.goto("/ui/sign-in/")
    page.get_by_label("Username").fill("viewer")
    page.get_by_label("Password").fill(PEOPLE["viewer"])
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page).to_have_url(served.url + "/ui/")


def test_no_page_breaks_the_policy_or_complains(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "admin")
    for place in PLACES:
        answer = page.goto(place)
        assert answer is not None
        assert answer.status == 200, place
        page.wait_for_load_state("networkidle" if place == "/api/docs" else "load")


def test_no_page_is_wider_than_a_phone(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "admin", **PHONE)
    add_session(served, "ses_seen_on_a_phone")
    for place in ("/ui/", "/ui/account/", "/ui/account/password/", "/ui/style/"):
        page.goto(place)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place


def test_another_programs_new_session_shows_up_on_the_overview(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "viewer")
    page.goto("/ui/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    add_session(served, "ses_0123456789ab")
    expect(page.locator("#now")).to_contain_text("ses_0123456789ab")


def test_a_key_pauses_what_is_live(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "viewer")
    page.goto("/ui/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.keyboard.press("p")
    expect(page.locator("#live")).to_have_attribute("data-state", "paused")
    add_session(served, "ses_while_paused")
    expect(page.locator("[data-live-count]")).to_contain_text("new")
    expect(page.locator("#now")).not_to_contain_text("ses_while_paused")
    page.keyboard.press("p")
    expect(page.locator("#now")).to_contain_text("ses_while_paused")


def test_the_page_stands_still_when_a_bar_takes_the_focus(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "admin", viewport={"width": 1280, "height": 500})
    page.goto("/ui/style/")
    page.evaluate("scrollTo(0, 600)")
    for button in (page.get_by_role("button", name="New thing"), page.get_by_role("button", name="admin")):
        button.focus()
        assert page.evaluate("scrollY") == 600


def test_the_theme_switch_takes_effect_at_once_and_stays(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "viewer", color_scheme="light")
    page.goto("/ui/account/")
    before = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.locator("main").get_by_role("button", name="Dark").click()
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.reload()
    assert dark != before
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark


def test_the_keyboard_walks_rows_and_helps(served: Served, person_at: PersonAt) -> None:
    for number in range(3):
        add_session(served, f"ses_to_walk_{number}")
    page, _ = person_at(served, "viewer")
    page.goto("/ui/")
    for key in "jjk":
        page.keyboard.press(key)
    assert page.locator("[data-row].selected").count() == 1
    assert page.locator("[data-row]").first.get_attribute("class") == "selected"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.get_by_label("Single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_hidden()


def test_the_palette_opens_by_key_and_leads_to_what_is_chosen(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "admin")
    page.goto("/ui/")
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Go to")
    expect(field).to_be_focused()
    expect(page.get_by_role("option").first).to_have_attribute("aria-selected", "true")
    field.fill("budg")
    expect(page.get_by_role("option").first).to_contain_text("Budgets")
    expect(page.locator("[data-palette-count]")).to_contain_text("results")
    first = field.get_attribute("aria-activedescendant")
    page.keyboard.press("ArrowDown")
    assert field.get_attribute("aria-activedescendant") != first
    expect(field).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page).to_have_url(served.url + "/ui/budgets/")


def test_escape_closes_the_palette_and_a_question_is_not_covered_by_it(
    served: Served, person_at: PersonAt
) -> None:
    page, _ = person_at(served, "admin")
    page.goto("/ui/")
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()
    page.keyboard.press("?")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_hidden()


def test_g_and_a_letter_open_a_page_and_decide_nothing(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "admin")
    page.goto("/ui/")
    page.keyboard.press("g")
    expect(page.locator("body")).to_have_class(re.compile("going"))
    page.keyboard.press("Escape")
    page.evaluate("""() => {
        const button = document.createElement("button");
        button.dataset.key = "a";
        button.addEventListener("click", () => { document.title = "decided"; });
        document.querySelector("main").append(button);
    }""")
    page.keyboard.press("g")
    page.keyboard.press("a")
    expect(page).to_have_url(served.url + "/ui/approvals/")


def test_a_thumb_reaches_every_page_on_a_phone(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "admin", **PHONE)
    page.goto("/ui/")
    expect(page.locator(".rail .rail-item.pinned")).to_have_count(4)
    page.get_by_role("button", name="More").click()
    menu = page.locator("#menu")
    for name in ("Rules", "Who decides", "Runners", "Usage", "People"):
        box = menu.get_by_role("link", name=name, exact=True).bounding_box()
        assert box is not None
        assert box["height"] >= 32
    badge = page.locator(".rail").get_by_role("link", name="Approvals")
    expect(badge).to_be_visible()
    menu.get_by_role("link", name="Usage", exact=True).click()
    expect(page).to_have_url(served.url + "/ui/costs/")


def test_times_are_told_in_the_viewers_zone(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "viewer", timezone_id="Asia/Tokyo", locale="en-GB")
    page.goto("/ui/account/")
    assert "GMT+9" in (page.locator("time").first.get_attribute("title") or "")


def test_everything_is_reached_without_javascript(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "viewer", java_script_enabled=False)
    page.goto("/ui/")
    page.get_by_role("button", name="viewer").click()
    page.get_by_role("link", name="Account", exact=True).click()
    page.locator("main").get_by_role("button", name="Dark").click()
    expect(page.locator("meta[name=color-scheme]")).to_have_attribute("content", "dark")
    page.get_by_role("button", name="viewer").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_phone_reaches_every_entry(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "admin", **PHONE)
    page.goto("/ui/")
    page.get_by_role("button", name="More").click()
    page.locator("#menu").get_by_role("link", name="Admin").click()
    expect(page).to_have_url(served.url + "/admin/")


@pytest.mark.parametrize("path", ["/ui/runs/", "/ui/audit/", "/ui/approvals/history/"])
def test_on_a_phone_the_filters_stand_behind_one_button(
    served: Served, person_at: PersonAt, path: str
) -> None:
    page, _ = person_at(served, "viewer", **PHONE)
    page.goto(path + "?since=2026-01-05&zone=UTC")
    day = page.get_by_label("From")
    expect(day).to_be_hidden()
    button = page.locator("label", has_text="Filters")
    expect(button).to_contain_text("1")
    button.click()
    expect(day).to_be_visible()
    expect(day).to_have_value("2026-01-05")


def test_a_request_that_fails_says_so(served: Served, person_at: PersonAt) -> None:
    page, watch = person_at(served, "viewer")
    watch.expect("404")
    page.goto("/ui/")
    page.evaluate("htmx.ajax('GET', '/nowhere', {target: '#now', swap: 'innerHTML'})")
    expect(page.locator(".toast.error")).to_contain_text("Not Found")
    expect(page.locator("#now")).not_to_contain_text("Not Found")
