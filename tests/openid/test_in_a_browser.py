"""A person in a real Chromium: out to the provider, back, at work, asked anew there, and signed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import Watch
from tests.openid.provider import CLIENT, SECRET, Provider
from tests.served import Served

pytestmark = pytest.mark.one_engine


def test_a_person_signs_in_decides_confirms_and_signs_out(
    running_provider: Provider, serve: Callable[..., Served], person_at: Callable[..., tuple[Page, Watch]]
) -> None:
    provider, served = running_provider.well(), serve(workers=1, **environment(running_provider))
    provider.asks = True
    asked = served.client(key="agent").post("/api/permission-requests", json=REQUEST).json()["request_id"]
    page, watch = person_at(served, None)
    page.goto(f"/ui/approvals/{asked}/")
    page.get_by_role("button", name="Sign in with Acme").click()
    page.get_by_role("link", name="I am anna").click()
    page.wait_for_url(f"**/ui/approvals/{asked}/")
    # Another browser's storage, or an emptied one: who has the cookie alone is asked at the provider.
    watch.expect("403")
    page.evaluate("localStorage.clear()")
    page.get_by_placeholder("Reason (optional)").fill("looks right")
    approve = page.locator(".decide").get_by_role("button", name="Approve")
    approve.click()
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Confirm with Acme").click()
    opened.value.get_by_role("link", name="I am anna").click()
    expect(opened.value.get_by_role("heading", name="Confirmed")).to_be_visible()
    opened.value.close()
    expect(page.get_by_placeholder("Reason (optional)")).to_have_value("looks right")
    approve.click()
    expect(page.locator("main")).to_contain_text("anna approved it", ignore_case=True)
    page.goto("/ui/account/")
    sign_out(page)
    expect(page.get_by_role("button", name="Sign in with Acme")).to_be_visible()
    assert "/logout" in provider.asked


REQUEST = {
    "plugin_id": "agent.alpha",
    "permission_type": "Deploy",
    "justification": "please",
    "target_resource": "prod",
}


def environment(provider: Provider) -> dict[str, Any]:
    return {
        "SIGNALBOX_OIDC_ISSUER": provider.issuer,
        "SIGNALBOX_OIDC_NAME": "Acme",
        "SIGNALBOX_OIDC_CLIENT_ID": CLIENT,
        "SIGNALBOX_OIDC_CLIENT_SECRET": SECRET,
        "SIGNALBOX_OIDC_ROLES": "ops=approver,bosses=admin",
        "SIGNALBOX_PASSWORD_SIGN_IN": "off",
    }


def sign_out(page: Page) -> None:
    page.locator(".rail-foot button").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/ui/sign-in/")
