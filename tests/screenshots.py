"""`python -m tests.screenshots`: make the documents' pictures anew, from the demo's week in a real Chromium.

A server of its own is started on an empty data folder and filled by `manage.py demo`; each picture of SHOTS is
taken light and dark, and written to .docs/pictures/ as WebP without loss.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser import FLAGS, PHONE, chromium_path
from tests.served import PEOPLE, ROOT, Served, Template, manage

FOLDER = ROOT / ".docs/pictures"
SCHEMES = ("light", "dark")
DESK = {"viewport": {"width": 1280, "height": 800}}


@dataclass(frozen=True)
class Shot:
    """One picture: its name, where a person goes, and what they do there before it is taken."""

    name: str
    path: str
    device: dict[str, Any] = field(default_factory=lambda: DESK)
    then: Callable[[Page], None] = lambda page: None

    def file(self, scheme: str) -> Path:
        """Where the picture of a colour scheme (`light` or `dark`) goes."""
        return FOLDER / f"{self.name}-{scheme}.webp"


def open_a_failing_session(page: Page) -> None:
    """Go to the newest session with errors in it."""
    page.locator("a[href^='/ui/sessions/ses_']").first.click()
    page.wait_for_load_state("load")


SHOTS = (
    Shot("session", "/ui/sessions/?errors=yes", then=open_a_failing_session),
    Shot("approvals-phone", "/ui/approvals/", device=PHONE),
)


def main() -> None:
    """Make every picture."""
    path = chromium_path()
    if path is None:
        raise SystemExit("no Chromium here: install one, or name it in SIGNALBOX_TEST_CHROMIUM")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        template = Template(Path(folder, "template"))
        served = Served(template, Path(folder, "served"), workers=1, env={})
        manage("demo", "--anyway", env=served.env)
        served.start()
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            for scheme in SCHEMES:
                for shot in SHOTS:
                    take(browser, served, shot, scheme)
        finally:
            browser.close()
            served.close()
            template.drop()


def take(browser: Browser, served: Served, shot: Shot, scheme: str) -> None:
    """Take one picture as an approver sees it, and write it."""
    context = browser.new_context(
        base_url=served.url,
        color_scheme=scheme,
        device_scale_factor=1.5,
        timezone_id="Europe/Zurich",
        **shot.device,
    )
    page = context.new_page()
    page.goto("/ui/sign-in/")
    page.get_by_label("Username").fill("approver")
    page.get_by_label("Password").fill(PEOPLE["approver"])
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/ui/")
    page.goto(shot.path)
    shot.then(page)
    page.wait_for_function("document.readyState === 'complete' && document.fonts.status === 'loaded'")
    picture = Image.open(io.BytesIO(page.screenshot(animations="disabled")))
    target = shot.file(scheme)
    picture.convert("RGB").save(target, lossless=True, method=6)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1000:.0f} kB")
    context.close()


if __name__ == "__main__":
    main()
