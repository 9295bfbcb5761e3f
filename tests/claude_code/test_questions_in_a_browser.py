"""A person answers an agent's questions in a real browser, and its hook goes on with the answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser import PHONE
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import AGENT_KEY, pending, prepare
from tests.claude_code.test_questions import COLOUR, FRUITS, PLAN, ask, decision
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.browser]


@pytest.fixture
def claude(serve: Callable[..., Served]) -> Claude:
    served = serve()
    prepare(served)
    claude = Claude(served, key=AGENT_KEY, wait="100")
    claude.served = served  # type: ignore[attr-defined]
    claude.prompt("Get going.")
    return claude


@pytest.mark.parametrize("device", [{}, PHONE], ids=["desktop", "phone"])
def test_one_tap_answers_a_single_choice(
    claude: Claude, person_at: Callable[..., Any], device: dict[str, Any]
) -> None:
    served: Served = claude.served  # type: ignore[attr-defined]
    page, _watch = person_at(served, "approver", **device)
    page.goto("/ui/approvals/")
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, claude, "AskUserQuestion", {"questions": [COLOUR]})
        pending(served, claude)
        page.get_by_role("button", name="Blue, dark").click()
        assert decision(reply.result())["updatedInput"]["answers"] == {"Which colour?": "Blue, dark"}
    expect(page.locator(".answers")).to_contain_text("Blue, dark")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_several_questions_keep_what_was_typed_until_each_is_answered(
    claude: Claude, person_at: Callable[..., Any]
) -> None:
    served: Served = claude.served  # type: ignore[attr-defined]
    page, _watch = person_at(served, "approver")
    page.goto("/ui/approvals/")
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, claude, "AskUserQuestion", {"questions": [COLOUR, FRUITS]})
        pending(served, claude)
        page.get_by_label("Or in your own words").first.fill("Green, please")
        page.get_by_role("button", name="Send answers").click()
        expect(page.locator(".toasts")).to_contain_text("Which fruits?")
        expect(page.get_by_label("Or in your own words").first).to_have_value("Green, please")
        page.get_by_label("Apple").check()
        page.get_by_label("Pear, ripe").check()
        page.get_by_role("button", name="Send answers").click()
        answers = decision(reply.result())["updatedInput"]["answers"]
    assert answers == {"Which colour?": "Green, please", "Which fruits?": 'Apple, "Pear, ripe"'}


def test_a_plan_is_read_and_approved(claude: Claude, person_at: Callable[..., Any]) -> None:
    served: Served = claude.served  # type: ignore[attr-defined]
    page, _watch = person_at(served, "approver")
    page.goto("/ui/approvals/")
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, claude, "ExitPlanMode", PLAN)
        pending(served, claude)
        expect(page.get_by_role("heading", name="Paint", exact=True)).to_be_visible()
        page.get_by_role("button", name="Approve, allow edits").click()
        permissions = decision(reply.result())["updatedPermissions"]
    assert permissions == [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
    expect(page.locator(".answers")).to_contain_text("Edits are allowed.")
