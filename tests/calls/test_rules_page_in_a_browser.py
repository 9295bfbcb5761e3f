"""A person edits the list of rules in a real browser: tested at once, moved, switched off, saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.browser]


def write_rule(page: Any, place: int, pattern: str) -> None:
    page.locator(f"[name=form-{place}-tool]").fill("Bash")
    page.locator(f"[name=form-{place}-pattern]").fill(pattern)


def test_rules_are_tested_moved_and_switched_off(
    serve: Callable[..., Served], person_at: Callable[..., Any]
) -> None:
    served = serve()
    page, _watch = person_at(served, "approver")
    page.goto("/ui/rules/")
    write_rule(page, 0, "git push")
    page.get_by_role("heading", name="Effect of your changes").wait_for()  # without a button
    page.get_by_role("button", name="Save rules").click()
    page.get_by_text("The rules are saved").wait_for()
    write_rule(page, 1, "git tag")
    page.locator("[name=form-1-pattern]").press("Enter")  # tests, and neither saves nor changes a rule
    page.get_by_text("Edit rule 2").wait_for()
    assert page.locator("[name=form-0-pattern]").input_value() == "git push"
    page.get_by_role("button", name="Save rules").click()
    page.get_by_text("The rules are saved").wait_for()
    page.get_by_label("Move rule 2 up").click()
    page.get_by_label("Off", exact=True).first.check()
    page.get_by_role("button", name="Save rules").click()
    page.get_by_text("The rules are saved").wait_for()
    assert [page.locator(f"[name=form-{place}-pattern]").input_value() for place in (0, 1)] == [
        "git tag",
        "git push",
    ]
    assert page.locator("[name=form-0-is_off]").is_checked()
    assert not page.locator("[name=form-1-is_off]").is_checked()
