from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser import PHONE, Watch
from tests.served import Served, Template, running

pytestmark = [pytest.mark.browser, pytest.mark.served]
PersonAt = Callable[..., tuple[Page, Watch]]
PLUGIN = "/admin/coordinator/pluginsetting/mind.deepseek/change/"
PLACES = (
    PLUGIN,
    "/admin/coordinator/pluginsetting/add/",
    "/admin/coordinator/agent/agent.cloto_default/change/",
    "/admin/coordinator/agent/agent.cloto_default/delete/",
    "/admin/coordinator/mcpserver/add/",
    "/admin/coordinator/event/",
    "/admin/coordinator/auditlog/",
    "/admin/auth/user/1/change/",
    "/admin/auth/user/1/password/",
)


@pytest.fixture(scope="module")
def served(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests here: none of them minds the rows of another."""
    with running(served_template, tmp_path_factory.mktemp("admin") / "server") as server:
        yield server


def test_pages_keep_to_the_policy_and_to_a_phones_width(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "admin", **PHONE)
    for place in PLACES:
        answer = page.goto(place)
        assert answer is not None
        assert answer.status == 200, place
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place


def test_three_values_are_added_at_once(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "admin")
    page.goto(PLUGIN)
    rows = page.locator("#configs-group .row-line.new")
    expect(rows).to_have_count(2)
    page.locator("#configs-group [data-add-row]").click()
    expect(rows).to_have_count(3)
    for number, name in enumerate(("one/1", "two 2", "API_KEY")):
        rows.nth(number).locator("input[type=text]").fill(name)
        rows.nth(number).locator("textarea").fill(f"value\nof {name}")
    page.get_by_role("button", name="Save and continue editing").click()
    expect(page.locator("#configs-group .row-line code", has_text="one/1")).to_be_visible()
    stored = dict(
        served.sql("SELECT config_key, config_value FROM plugin_configs WHERE plugin_id = 'mind.deepseek'")
    )
    assert stored["two 2"] == "value\nof two 2"
    assert stored["API_KEY"] == "value\nof API_KEY"
    assert "of API_KEY" not in page.content()
