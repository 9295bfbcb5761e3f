"""A browser calls a person who looks elsewhere: the tab's title, a notification, a sound.

The browser's own Notification and AudioContext are used, through subclasses that note what was made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.test_wait import asked
from tests.browser import Watch
from tests.served import Served, Template, running

pytestmark = [pytest.mark.browser, pytest.mark.served]
NEEDS_WHOLE_BROWSER = True  # the headless shell is always in focus
PersonAt = Callable[..., tuple[Page, Watch]]
NOTED = """
    window.made = [];
    window.tones = [];
    window.Notification = class extends Notification {
        constructor(...given) {
            super(...given);
            window.made.push(this);
            document.documentElement.dataset.made = window.made.length; // a thing to wait for
        }
    };
    window.AudioContext = class extends AudioContext {
        createOscillator() {
            const tone = super.createOscillator();
            window.tones.push(this);
            return tone;
        }
    };
"""


@pytest.fixture(scope="module")
def one_server(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(served_template, tmp_path_factory.mktemp("attention") / "server", workers=1) as server:
        yield server


@pytest.fixture
def served(one_server: Served) -> Served:
    one_server.sql("DELETE FROM permission_requests")
    return one_server


@pytest.fixture
def page(served: Served, person_at: PersonAt) -> Page:
    """An approver's page with both switched on, which somebody has in view but does not use: it has no focus."""
    page, _ = person_at(served, "approver", permissions=["notifications"])
    page.add_init_script(NOTED)
    page.goto("/ui/approvals/notifications/")
    page.get_by_label("Show a notification").check()
    page.get_by_label("Play a sound").check()
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.context.new_cdp_session(page).send("Emulation.setFocusEmulationEnabled", {"enabled": False})
    page.context.new_page().bring_to_front()
    assert page.evaluate("document.hasFocus()") is False
    return page


def made(page: Page, number: int) -> None:
    """Wait until so many notifications were made."""
    expect(page.locator("html")).to_have_attribute("data-made", str(number))


def notes(page: Page) -> list[str]:
    return page.evaluate("made.map(note => note.body)")


def test_a_request_makes_a_notification_and_a_sound(served: Served, page: Page) -> None:
    before = page.evaluate("tones.length")  # switching the sound on plays it once
    asked(served, target_resource="api.first")
    made(page, 1)
    assert notes(page) == ["A request is waiting for you"]
    assert page.evaluate("tones.length") == before + 2
    assert page.evaluate("tones.at(-1).state") == "running"
    asked(served, target_resource="api.second")
    made(page, 2)
    assert notes(page)[-1] == "2 requests are waiting for you"
    assert (
        page.evaluate("new Set(made.map(note => note.tag)).size") == 1
    )  # the second takes the first's place
    expect(page).to_have_title("(2) Notifications · Signalbox")


def test_a_verdict_calls_nobody(served: Served, page: Page) -> None:
    asked(served, target_resource="api.one")
    asked(served, target_resource="api.two")
    expect(page).to_have_title("(2) Notifications · Signalbox")
    before = notes(page)
    served.sql("DELETE FROM permission_requests WHERE target_resource = 'api.one'")
    expect(page).to_have_title("(1) Notifications · Signalbox")
    assert notes(page) == before


def test_the_notification_leads_to_the_inbox(served: Served, page: Page) -> None:
    asked(served, target_resource="api.lead")
    made(page, 1)
    page.evaluate("made[0].dispatchEvent(new Event('click'))")
    page.wait_for_url("**/ui/approvals/")


def test_a_hidden_tab_without_a_stream_still_asks(served: Served, page: Page) -> None:
    page.clock.install()
    page.reload()
    page.evaluate("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    asked(served, target_resource="api.hidden")
    page.clock.run_for(21_000)
    made(page, 1)


def test_where_the_browser_refuses_the_switch_says_so_and_stays_off(
    served: Served, person_at: PersonAt
) -> None:
    page, _ = person_at(served, "approver")
    page.goto("/ui/approvals/notifications/")
    box = page.get_by_label("Show a notification")
    box.click()
    expect(page.locator("[data-attention-message]")).to_contain_text("does not allow notifications")
    expect(box).not_to_be_checked()
