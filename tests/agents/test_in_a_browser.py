"""Agents in a real Chromium: heartbeats show at once, the guarded switch works, on a phone too."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser import PHONE

pytestmark = [pytest.mark.browser, pytest.mark.served]
AGENT = "agent.cloto_default"


@pytest.fixture
def served(one_server):
    """One server for all tests here: none of them minds what another left."""
    return one_server.emptied()


def test_a_heartbeat_shows_on_the_list_and_on_the_page(served, person_at):
    page, _ = person_at(served, "viewer")
    other, _ = person_at(served, "viewer")
    page.goto("/ui/agents/")
    other.goto(f"/ui/agents/of/{AGENT}/")
    for one in (page, other):
        expect(one.locator("#live")).to_have_attribute("data-state", "live")
    row = page.locator(f'[data-agent="{AGENT}"]')
    expect(row).to_contain_text("Offline")
    served.client("agent").post(f"/api/agents/{AGENT}/heartbeat").raise_for_status()
    expect(row).to_contain_text("Online")
    expect(other.locator("#agent-head")).to_contain_text("Online")


def test_the_switch_is_guarded_and_used_on_a_phone(served, person_at):
    page, _ = person_at(served, "admin", **PHONE)
    page.goto(f"/ui/agents/of/{AGENT}/")
    page.get_by_role("link", name="Set password").click()
    page.get_by_label("New password").fill("hunter2")
    page.get_by_role("button", name="Set password").click()
    page.get_by_label("Power switch password").fill("wrong")
    page.get_by_role("button", name="Switch off").click()
    page.locator("#confirm [value=yes]").click()
    expect(page.locator(".toasts")).to_contain_text("Wrong password")
    page.get_by_label("Power switch password").fill("hunter2")
    page.get_by_role("button", name="Switch off").click()
    page.locator("#confirm [value=yes]").click()
    expect(page.locator("#agent-head")).to_contain_text("Off, protected by a password")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_an_agent_is_made_given_a_plugin_and_deleted(served, person_at):
    page, _ = person_at(served, "admin")
    page.goto("/ui/agents/")
    page.get_by_role("link", name="New agent").click()
    page.get_by_label("Name").fill("Night watch")
    page.get_by_label("Engine").fill("mind.deepseek")
    page.get_by_role("button", name="Create agent").click()
    page.wait_for_url("**/ui/agents/of/agent.night_watch/")
    page.get_by_label("Plugin to assign").fill("mind.deepseek")
    page.get_by_role("button", name="Assign").click()
    expect(page.get_by_role("button", name="Remove mind.deepseek")).to_be_visible()
    page.get_by_role("link", name="Delete").click()
    page.get_by_label("Type the agent's id").fill("agent.night_watch")
    page.get_by_role("button", name="Delete agent").click()
    page.wait_for_url("**/ui/agents/")
    expect(page.locator('[data-agent="agent.night_watch"]')).to_have_count(0)


def test_a_permission_is_granted_and_revoked_with_reasons(served, person_at):
    page, _ = person_at(served, "approver")
    page.goto("/ui/plugins/of/mind.deepseek/")
    page.get_by_label("Grant", exact=True).select_option("FileRead")
    page.locator("#grant-reason").fill("reads the rules")
    page.get_by_role("button", name="Grant").click()
    row = page.locator(".permission", has_text="FileRead")
    expect(row).to_contain_text("user:approver")
    expect(row).to_contain_text("reads the rules")
    row.locator("summary").click()
    row.get_by_label("Reason").fill("done")
    row.get_by_role("button", name="Revoke FileRead").click()
    expect(page.locator(".permission", has_text="FileRead")).to_have_count(0)
