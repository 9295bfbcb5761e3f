"""static/js/live.js in a real browser: it follows, pauses, hides, comes back, and swaps what it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.live.connections import make_session
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.browser]

LISTEN = """() => {
  window.heard = [];
  for (const name of ["live:sessions", "live:reset"]) {
    document.body.addEventListener(name, (event) => window.heard.push([name, event.detail.key ?? ""]));
  }
}"""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def page(shared: Served, person_at: Callable[..., Any]) -> Page:
    """The sessions list, connected, noting what it is told in `window.heard`."""
    page, watch = person_at(shared, "viewer")
    watch.expect_an_outage()
    page.goto("/ui/sessions/")
    page.evaluate(LISTEN)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    return page


def heard(page: Page, key: str) -> None:
    """Wait until the page was told of that session."""
    page.wait_for_function("(key) => window.heard.some(([, k]) => k === key)", arg=key)


def keys(page: Page) -> list[str]:
    return [key for _, key in page.evaluate("() => window.heard")]


def test_what_another_program_writes_becomes_an_event_on_the_page(shared: Served, page: Page) -> None:
    make_session(shared, "ses_page1")
    heard(page, "ses_page1")


def test_a_list_shows_the_last_of_two_changes_in_a_row(shared: Served, page: Page) -> None:
    page.goto("/ui/runs/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    for prompt in ("first of two", "second of two", "third at once"):
        order = {"type": "start_session", "parameters": {"prompt": prompt}, "project_dir": "/x"}
        shared.client("operator").post("/runs", json=order).raise_for_status()
        expect(page.locator("tr[data-row]").filter(has_text=prompt)).to_be_visible()


def test_a_list_that_found_no_server_says_so_only_by_the_live_button(
    shared: Served, person_at: Callable[..., Any]
) -> None:
    page, watch = person_at(shared, "viewer")
    watch.expect_an_outage()
    page.goto("/ui/runs/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.route("**/ui/runs/", lambda route: route.abort("connectionrefused"), times=1)
    order = {"type": "start_session", "parameters": {"prompt": "seen after all"}, "project_dir": "/x"}
    with page.expect_event("requestfailed"):
        shared.client("operator").post("/runs", json=order).raise_for_status()
    expect(page.locator("tr[data-row]").filter(has_text="seen after all")).to_be_visible()
    assert page.locator(".toast").count() == 0


def test_a_list_that_a_busy_server_refused_is_loaded_a_little_later(
    shared: Served, person_at: Callable[..., Any]
) -> None:
    page, watch = person_at(shared, "viewer")
    watch.expect("503")
    page.goto("/ui/runs/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.route("**/ui/runs/", lambda route: route.fulfill(status=503, body="busy"), times=1)
    order = {"type": "start_session", "parameters": {"prompt": "seen late"}, "project_dir": "/x"}
    with page.expect_response(lambda answer: answer.status == 503):
        shared.client("operator").post("/runs", json=order).raise_for_status()
    expect(page.locator("tr[data-row]").filter(has_text="seen late")).to_be_visible()


def test_a_hidden_page_holds_no_stream_and_catches_up_when_it_is_shown(shared: Served, page: Page) -> None:
    page.evaluate(HIDE, True)
    make_session(shared, "ses_page2")
    page.wait_for_timeout(300)
    assert keys(page) == []
    page.evaluate(HIDE, False)
    heard(page, "ses_page2")
    assert keys(page).count("ses_page2") == 1
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


def test_a_paused_page_counts_what_arrives_and_shows_it_when_resumed(shared: Served, page: Page) -> None:
    page.locator("#live").click()
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")
    for number in range(3):
        make_session(shared, f"ses_pause{number}")
    expect(page.locator("#live [data-live-count]")).to_have_text("3 new")
    assert keys(page) == []
    page.locator("#live").click()
    heard(page, "ses_pause2")
    assert keys(page) == ["ses_pause0", "ses_pause1", "ses_pause2"]
    expect(page.locator("#live [data-live-count]")).to_be_hidden()


def test_a_key_pauses_too(page: Page) -> None:
    page.keyboard.press("p")
    expect(page.locator("#live")).to_have_attribute("data-state", "paused")


def test_a_restart_is_survived_and_nothing_is_missed(shared: Served, page: Page) -> None:
    shared.stop()
    make_session(shared, "ses_page3")
    expect(page.locator("#live")).not_to_have_attribute("data-state", "live")
    shared.start()
    heard(page, "ses_page3")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


def test_a_row_that_changed_is_drawn_anew_where_it_stands(shared: Served, page: Page) -> None:
    make_session(shared, "ses_page4")
    page.reload()
    row = page.locator('[data-session-row="ses_page4"]').first
    expect(row).to_contain_text("running", ignore_case=True)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    shared.sql("UPDATE sessions SET status = 'stopped' WHERE session_id = 'ses_page4'")
    expect(row).to_contain_text("stopped", ignore_case=True)
