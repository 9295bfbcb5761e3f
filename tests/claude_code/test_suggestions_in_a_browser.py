"""A person accepts one suggested rule after the other, in a real browser, without reading the page again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import AGENT_KEY, prepare
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.browser]


def test_two_suggestions_are_accepted_one_after_the_other(
    serve: Callable[..., Served], person_at: Callable[..., Any]
) -> None:
    served = serve()
    prepare(served)
    claude = Claude(served, key=AGENT_KEY)
    claude.start()
    for command in ("git log -3", "make test"):
        for _time in range(3):
            claude.call("Bash", {"command": command})
    claude.end()
    page, _watch = person_at(served, "approver")
    page.goto("/ui/rules/suggestions/")
    page.get_by_role("button", name="Accept rule").nth(1).wait_for()
    for left in (1, 0):
        page.get_by_role("button", name="Accept rule").first.click()
        page.get_by_text("allows it from now on").nth(1 - left).wait_for()
        assert page.get_by_role("button", name="Accept rule").count() == left
