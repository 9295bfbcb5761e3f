"""A person with a device in a real Chromium, whose authenticator is Chromium's virtual one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import CDPSession, Page, expect

from tests.browser import Watch
from tests.served import PEOPLE, Served, Template, running

pytestmark = pytest.mark.one_engine
Visit = Callable[..., tuple[Page, Watch]]
REQUEST = {
    "plugin_id": "agent.alpha",
    "permission_type": "Deploy",
    "justification": "please",
    "target_resource": "prod",
}
DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture(scope="module")
def served(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server as it is without settings, but that decisions need a confirmation."""
    folder = tmp_path_factory.mktemp("passkeys") / "server"
    env = {"SIGNALBOX_PUBLIC_URL": "", "SIGNALBOX_CONFIRM_DECISIONS_WITHIN": "600"}
    with running(served_template, folder, **env) as server:
        yield server


@pytest.fixture
def at_own_host(served: Served) -> Any:
    """The server at the host name that its pages have."""
    answer = httpx.get(f"{served.url}/ui/sign-in/", timeout=60)
    place = urlsplit(answer.headers["Location"])
    return SimpleNamespace(url=f"{place.scheme}://{place.netloc}")


class Device:
    """The virtual authenticator of one page."""

    def __init__(self, page: Page) -> None:
        self.session: CDPSession = page.context.new_cdp_session(page)
        self.session.send("WebAuthn.enable")
        added = self.session.send("WebAuthn.addVirtualAuthenticator", {"options": DEVICE})
        self.id = added["authenticatorId"]

    def credentials(self) -> list[dict[str, Any]]:
        found = self.session.send("WebAuthn.getCredentials", {"authenticatorId": self.id})
        return list(found["credentials"])

    def send(self, method: str, **more: Any) -> None:
        self.session.send(f"WebAuthn.{method}", {"authenticatorId": self.id} | more)


def sign_in_by_hand(page: Page, name: str) -> None:
    page.goto("/ui/sign-in/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PEOPLE[name])
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/ui/")


def sign_out(page: Page) -> None:
    page.locator(".rail-foot button").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/ui/sign-in/")


def add_passkey(page: Page, name: str) -> None:
    page.goto("/ui/account/")
    page.get_by_label("Name of the new passkey").fill(name)
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.locator("main")).to_contain_text(name)


@pytest.fixture
def owner(person_at: Visit, at_own_host: Any, served: Served) -> Iterator[tuple[Page, Watch, Device]]:
    """An approver who has signed in by password and added a passkey."""
    page, watch = person_at(at_own_host, None)
    device = Device(page)
    sign_in_by_hand(page, "approver")
    add_passkey(page, "Laptop")
    yield page, watch, device
    served.sql("DELETE FROM passkeys")


def ask(served: Served) -> str:
    answer = served.client(key="agent").post("/api/permission-requests", json=REQUEST)
    return str(answer.json()["request_id"])


def test_a_person_adds_passkeys_signs_in_with_one_and_removes_it(owner: tuple[Page, Watch, Device]) -> None:
    page, watch, device = owner
    watch.expect("403")
    assert [one["isResidentCredential"] for one in device.credentials()] == [True]
    # The device that has one makes no second; another device does, once the passkey has confirmed it.
    page.get_by_label("Name of the new passkey").fill("Phone")
    page.get_by_role("button", name="Add a passkey").click()
    dialog = page.locator("#password-again")
    dialog.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_text("This device already has a passkey for your account.")).to_be_visible()
    sign_out(page)
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url("**/ui/")
    page.goto("/ui/account/")
    expect(page.locator("main")).to_contain_text("last used")
    page.get_by_role("button", name="Remove the passkey Laptop").click()
    page.locator("#confirm [value=yes]").click()
    expect(page.locator("#toasts")).to_contain_text("The passkey Laptop is removed")
    sign_out(page)
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_text("does not know this passkey")).to_be_visible()


def test_an_approval_waits_for_the_passkey_and_goes_on_by_itself(
    owner: tuple[Page, Watch, Device], served: Served
) -> None:
    page, watch, _ = owner
    watch.expect("403")
    request_id = ask(served)
    page.goto(f"/ui/approvals/{request_id}/")
    page.get_by_placeholder("Reason (optional)").fill("looks right")
    page.locator(".decide").get_by_role("button", name="Approve").click()
    dialog = page.locator("#password-again")
    expect(dialog.get_by_text("Use your passkey or enter a recovery code to continue")).to_be_visible()
    expect(dialog.get_by_label("Recovery code")).to_be_visible()
    dialog.get_by_role("button", name="Use a passkey").click()
    expect(page.locator("main")).to_contain_text("approver approved it", ignore_case=True)
    expect(page.locator("main")).to_contain_text("looks right")


def test_a_plain_form_waits_on_a_page_of_its_own_and_goes_on(
    person_at: Visit, at_own_host: Any, served: Served
) -> None:
    page, watch = person_at(at_own_host, None)
    watch.expect("403")
    Device(page)
    sign_in_by_hand(page, "admin")
    add_passkey(page, "Laptop")
    page.goto("/ui/keys/")
    page.get_by_label("Name").fill("made-with-a-passkey")
    page.get_by_label("read", exact=False).first.check()
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_role("heading", name="Confirm that it is you")).to_be_visible()
    page.locator("main").get_by_role("button", name="Use a passkey").click()
    expect(page.locator("main")).to_contain_text("made-with-a-passkey")
    served.sql("DELETE FROM passkeys")


def test_a_device_that_does_not_verify_its_person_signs_nobody_in(
    owner: tuple[Page, Watch, Device],
) -> None:
    page, _, device = owner
    sign_out(page)
    device.send("setUserVerified", isUserVerified=False)
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_text("No passkey was used.")).to_be_visible()
    device.send("setUserVerified", isUserVerified=True)
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url("**/ui/")


def test_a_copied_passkey_is_refused_by_its_counter(owner: tuple[Page, Watch, Device]) -> None:
    page, watch, device = owner
    watch.expect("403")
    copy = device.credentials()[0]
    sign_out(page)
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url("**/ui/")
    sign_out(page)
    device.send("clearCredentials")
    device.send("addCredential", credential=copy)  # as it was before the sign-in
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_text("counter went back")).to_be_visible()


def test_without_javascript_all_else_works_and_the_page_says_why(
    person_at: Visit, at_own_host: Any, served: Served
) -> None:
    page, watch = person_at(at_own_host, None, java_script_enabled=False)
    watch.expect("403")
    page.goto("/ui/sign-in/")
    expect(page.get_by_text("Passkeys need JavaScript")).to_be_visible()
    expect(page.get_by_role("button", name="Sign in with a passkey")).to_be_hidden()
    sign_in_by_hand(page, "approver")
    request_id = ask(served)
    page.goto(f"/ui/approvals/{request_id}/")
    page.get_by_placeholder("Reason (optional)").fill("by hand")
    page.locator(".decide").get_by_role("button", name="Approve").click()
    page.locator("main").get_by_label("Password of approver").fill(PEOPLE["approver"])
    page.get_by_role("button", name="Confirm and continue").click()
    expect(page.get_by_role("heading", name="Confirm that it is you")).to_have_count(0)
    decided = served.client(key="agent").get(f"/api/permission-requests/{request_id}").json()
    assert decided["status"] == "approved"
