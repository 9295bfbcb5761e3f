"""What a real browser sends for a call's text field: the agent runs what was judged, or what a person typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import Watch, confirm_by_password
from tests.claude_code.double import Asking, Claude
from tests.served import KEYS, Served

pytestmark = [pytest.mark.browser, pytest.mark.served]
PersonAt = Callable[..., tuple[Page, Watch]]


@pytest.fixture
def served(one_server: Served) -> Served:
    """One server for all tests here; each finds an empty inbox."""
    return one_server.emptied("permission_requests")


def asking(served: Served, command: str) -> Asking:
    claude = Claude(served, key=KEYS["agent"], wait="100")
    return claude.asking(claude.new_call("Bash", {"command": command}))


def card(person_at: PersonAt, served: Served, **options: Any) -> Locator:
    page, watch = person_at(served, "approver", **options)
    if options:
        watch.expect("403")  # without a script, the password is asked for
    page.goto("/ui/approvals/")
    found = page.locator("article.ask")
    expect(found).to_have_count(1)
    return found


@pytest.mark.parametrize(
    "command",
    [
        "echo build #\rtouch /tmp/x",
        "echo a\nb",
        "echo a\r\nb",
        "\n\necho lead",
        "echo t\n\n",
        "a\x0bb",
        "a\u2028b",
    ],
    ids=ascii,
)
def test_a_plain_approval_lets_the_call_run_as_it_is(
    served: Served, person_at: PersonAt, command: str
) -> None:
    waiting = asking(served, command)
    card(person_at, served).get_by_role("button", name="Approve").click()
    assert waiting.result() == {"behavior": "allow"}


def test_what_a_person_types_is_what_runs(served: Served, person_at: PersonAt) -> None:
    waiting = asking(served, "rm -rf /data\r\nls")
    found = card(person_at, served)
    found.get_by_text("Edit before it runs").click()
    found.locator("textarea[name=edited]").fill("ls /data\nls")
    found.get_by_role("button", name="Approve").click()
    found.page.locator("#confirm [value=yes]").click()  # what was asked for is marked as dangerous
    assert waiting.result() == {"behavior": "allow", "updatedInput": {"command": "ls /data\nls"}}
    expect(found).to_contain_text("with an edited input")


def test_without_a_script_the_scope_and_the_call_are_those_of_the_form(
    served: Served, person_at: PersonAt
) -> None:
    waiting = asking(served, "./deploy.sh\r# now")
    found = card(person_at, served, java_script_enabled=False)
    expect(found.locator("select[name=validity]")).to_be_hidden()
    found.locator("select[name=scope]").select_option("folder")
    expect(found.locator("select[name=validity]")).to_be_visible()
    found.get_by_role("button", name="Approve").click()
    confirm_by_password(found.page, "approver")
    assert waiting.result() == {"behavior": "allow"}
    [told] = served.sql(
        "SELECT scope, validity, folder, host FROM permission_context ORDER BY closed_at DESC LIMIT 1"
    )
    assert told == ("folder", "1h", "/home/dev/shop", "laptop")
