"""A person switches a ready-made rule on, in a real browser, and the next call is asked about."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import AGENT_KEY, prepare
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.browser]


def test_a_switch_holds_for_recorded_calls_at_once(
    serve: Callable[..., Served], person_at: Callable[..., Any]
) -> None:
    served = serve()
    prepare(served)
    claude = Claude(served, key=AGENT_KEY)
    claude.start()
    for command in ("cd x && g'i't push", "echo git push", "cat .env"):
        claude.call("Bash", {"command": command})
    claude.end()
    page, _watch = person_at(served, "approver")
    page.goto("/ui/rules/")
    page.get_by_role("button", name="Switch on: Publishes or deploys").click()
    page.get_by_role("button", name="Switch off: Publishes or deploys").wait_for()
    asked = page.locator("tr", has_text="g'i't push")
    asked.get_by_text("rule 1").wait_for()
    assert page.locator("tr", has_text="echo git push").get_by_text("nothing").count() == 1
    assert asked.locator("mark").inner_text() == "git push"
    for width, scheme in ((1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if folder := os.environ.get("SHOTS"):
            page.screenshot(path=f"{folder}/{width}-{scheme}.png", full_page=True)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_role("button", name="Switch off: Publishes or deploys").click()
    page.get_by_role("button", name="Switch on: Publishes or deploys").wait_for()
