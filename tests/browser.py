"""A real Chromium for tests of pages, driven by Playwright; skipped with a reason where there is none.

`person_at(served, "approver")` gives a page that is signed in. At the test's end it fails for every console
error, page error and Content-Security-Policy violation that the test did not expect (`watch.expect(…)`).
One browser for as many tests as follow each other: Playwright's loop must not run on under tests that use the
ORM (`leave_if_done`, called after each test).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    expect,
    sync_playwright,
)

from tests.patience import PATIENCE
from tests.served import PEOPLE, PROOF, Served

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(timeout=PATIENCE * 1000)
EMPTY = '<link rel="icon" href="data:,">'
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


WHOLE = ("chromium", "chromium-browser", "google-chrome")
SHELL = "chromium-headless-shell"  # the same engine without a window: a third less of the processor's time


def chromium_path(*, whole: bool = True) -> str | None:
    """Return the Chromium of this machine: $SIGNALBOX_TEST_CHROMIUM, or one that is on the path.

    Where it need not be the `whole` browser, the headless shell will do: it shows no notification and keeps the focus.
    """
    names = (os.environ.get("SIGNALBOX_TEST_CHROMIUM"), *(() if whole else (SHELL,)), *WHOLE)
    return next((path for name in names if name and (path := shutil.which(name))), None)


class Running:
    """The browser that runs, if one does."""

    def __init__(self) -> None:
        self.playwright: Playwright | None = None
        self.browser: Browser | None = None
        self.path = ""

    def at(self, path: str) -> Browser:
        """Return the browser, started where it does not run (any more)."""
        if self.browser is None or not self.browser.is_connected() or self.path != path:
            self.close()
            self.path = path
            self.playwright = sync_playwright().start()
            self.browser = self.playwright.chromium.launch(executable_path=path, args=FLAGS)
        return self.browser

    def close(self) -> None:
        """End the browser and Playwright's loop."""
        if self.browser is not None:
            self.browser.close()
        if self.playwright is not None:
            self.playwright.stop()
        self.playwright = self.browser = None


RUNNING = Running()


@pytest.fixture(scope="module")
def chromium(request: pytest.FixtureRequest) -> Browser:
    """A running browser: the whole one for a module that says NEEDS_WHOLE_BROWSER = True."""
    path = chromium_path(whole=getattr(request.module, "NEEDS_WHOLE_BROWSER", False))
    if path is None:
        pytest.skip("no Chromium here: install one, or name it in SIGNALBOX_TEST_CHROMIUM")
    return RUNNING.at(path)


def leave_if_done(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the browser after `item` unless the next test is of the same module or uses it too."""
    if nextitem is None or not (
        nextitem.path == item.path or "chromium" in getattr(nextitem, "fixturenames", ())
    ):
        RUNNING.close()


class Watch:
    """What went wrong in a page's console; `expect` names, as patterns, what the test itself brings about."""

    def __init__(self, page: Page) -> None:
        self.expected: list[str] = []
        self.seen: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.seen.append(str(error)))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.seen.append(message.text)

    def expect(self, pattern: str) -> None:
        """Let messages that match `pattern` pass."""
        self.expected.append(pattern)

    def expect_an_outage(self) -> None:
        """Let pass what a page says of a server that is away, or goes before the page has heard of it."""
        self.expect(
            "ERR_CONNECTION|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|Failed to load|htmx:(sendError|afterRequest)"
        )

    def unexpected(self) -> list[str]:
        """Return the messages that nobody expected."""
        return [text for text in self.seen if not any(re.search(one, text) for one in self.expected)]


def sign_in(page: Page, name: str) -> None:
    """Sign in as one of PEOPLE with the cookies of the page's context, without drawing the form."""
    context = page.context
    context.request.get("/ui/sign-in/")
    token = next(cookie["value"] for cookie in context.cookies() if cookie["name"] == "signalbox_csrf")
    form = {"username": name, "password": PEOPLE[name], "csrfmiddlewaretoken": token, "new_proof": PROOF}
    answer = context.request.post("/ui/sign-in/", form=form)
    assert answer.url.endswith("/ui/"), answer.text()
    # An empty page of the server's origin, which asks for no icon.
    page.route("**/empty", lambda route: route.fulfill(content_type="text/html", body=EMPTY))
    page.goto("/empty")
    page.evaluate("proof => localStorage.setItem('signalbox-proof', proof)", PROOF)
    page.unroute("**/empty")


def confirm_by_password(page: Page, name: str) -> None:
    """Give the password on the page that asks for it: without a script there is no other proof of a sign-in."""
    page.locator("main").get_by_label(f"Password of {name}").fill(PEOPLE[name])
    page.get_by_role("button", name="Confirm and continue").click()


@pytest.fixture
def person_at(chromium: Browser) -> Iterator[Callable[..., tuple[Page, Watch]]]:
    """A function that gives a page for `served`, signed in as one of PEOPLE (or nobody), and its watch.

    It shows none of our pages yet: each takes a browser and a server their time, and most tests begin at another.
    """
    contexts: list[BrowserContext] = []
    watches: list[Watch] = []

    def arrive(served: Served, name: str | None, **options: Any) -> tuple[Page, Watch]:
        context = chromium.new_context(base_url=served.url, **options)
        context.set_default_timeout(PATIENCE * 1000)
        contexts.append(context)
        page = context.new_page()
        watches.append(Watch(page))
        if name:
            sign_in(page, name)
        return page, watches[-1]

    yield arrive
    for context in contexts:
        context.close()
    complaints = [text for watch in watches for text in watch.unexpected()]
    assert not complaints, "\n".join(complaints)
