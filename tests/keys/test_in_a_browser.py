from __future__ import annotations

import os
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page

from tests.browser import PHONE, Watch
from tests.served import Served

pytestmark = [pytest.mark.browser, pytest.mark.served]


@pytest.fixture
def served(one_server: Served) -> Served:
    """One server for both widths, without the key that the first made."""
    one_server.sql("DELETE FROM api_keys WHERE name = 'from-the-page'")
    return one_server


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
def test_an_admin_makes_uses_and_revokes_a_key(
    served: Served,
    person_at: Callable[..., tuple[Page, Watch]],
    options: dict[str, object],
) -> None:
    page, _ = person_at(served, "admin", **options)
    page.goto("/ui/keys/")
    page.get_by_label("Name").fill("from-the-page")
    page.get_by_label("read: read everything").check()
    page.get_by_role("button", name="Create key").click()
    raw = page.locator("#new-key").inner_text()
    headers = {"Authorization": f"Bearer {raw}"}
    assert httpx.get(f"{served.url}/sessions", headers=headers).status_code == 200
    if folder := os.environ.get("SIGNALBOX_TEST_SHOTS"):
        page.screenshot(path=f"{folder}/keys-{'phone' if options else 'desk'}.png", full_page=True)
    page.goto("/ui/keys/")
    row = page.get_by_role("row", name="from-the-page")
    row.get_by_role("button", name="Revoke").click()
    page.locator("#confirm [value=yes]").click()
    page.get_by_text("is revoked").wait_for()
    assert httpx.get(f"{served.url}/sessions", headers=headers).status_code == 401
