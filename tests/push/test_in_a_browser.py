"""Signalbox as an app in a real Chromium: installed, subscribed, told within two seconds, updated, and offline.

No browser of a test reaches a push service. So `subscribe` gives a subscription to a push service of ours, with keys
that we hold; what it takes from Signalbox, checked and opened, is handed to the real service worker by CDP.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import CDPSession, Page, Worker, expect

from tests.approvals.test_wait import asked
from tests.browser import PHONE, Watch
from tests.push.service import PushService, push_service
from tests.served import Served, Template, running

pytestmark = [pytest.mark.browser, pytest.mark.served, pytest.mark.one_engine]
PersonAt = Callable[..., tuple[Page, Watch]]
DEVICES = "/ui/approvals/notifications/"
ALLOWED = {"permissions": ["notifications"]}
# A subscription that the page's own code takes for the browser's. It lasts for the origin, as a real one does.
STUB = """
(() => {
  const place = "test-subscription";
  const made = () => ({
    endpoint: ADDRESS, options: {}, toJSON: () => ({ endpoint: ADDRESS, keys: KEYS }),
    unsubscribe: async () => { localStorage.removeItem(place); return true; },
  });
  PushManager.prototype.getSubscription = async () => localStorage.getItem(place) && made();
  PushManager.prototype.subscribe = async (options) => {
    localStorage.setItem(place, btoa(String.fromCharCode(...options.applicationServerKey)));
    return made();
  };
})();
"""


@pytest.fixture(scope="module")
def one_server(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("push") / "server"
    with running(served_template, folder, workers=1, SIGNALBOX_WEBHOOK_NETWORKS="127.0.0.1") as server:
        yield server


@pytest.fixture
def served(one_server: Served) -> Served:
    return one_server.emptied("permission_requests", "push_subscriptions", "notification_targets")


@pytest.fixture
def service() -> Iterator[PushService]:
    with push_service() as found:
        yield found


class Phone:
    """A page whose browser is subscribed at `service`, and the means to hand its service worker what came there."""

    def __init__(self, page: Page, service: PushService) -> None:
        self.page, self.service = page, service
        self.cdp: CDPSession = page.context.new_cdp_session(page)
        self.registrations: dict[str, str] = {}
        self.cdp.on("ServiceWorker.workerRegistrationUpdated", self._note)
        self.cdp.send("ServiceWorker.enable")

    def _note(self, told: dict[str, Any]) -> None:
        for one in told["registrations"]:
            self.registrations[one["scopeURL"]] = one["registrationId"]

    @property
    def worker(self) -> Worker:
        """The service worker that runs."""
        return self.page.context.service_workers[-1]

    def lay_aside(self) -> None:
        """Let nobody look at the page: whoever does is told there, and not by what stays on the screen."""
        self.page.context.new_page().bring_to_front()
        while self.worker.evaluate("async () => (await windows()).some((page) => page.focused)"):
            self.page.wait_for_timeout(20)

    def push(self) -> dict[str, Any]:
        """Hand the next message over as the browser would, and return it."""
        _, _, told = self.service.next()
        self.deliver(told)
        return told

    def deliver(self, told: dict[str, Any]) -> None:
        origin = self.page.evaluate("location.origin")
        number = self.registrations[f"{origin}/ui/"]
        given = {"origin": origin, "registrationId": number, "data": json.dumps(told)}
        self.cdp.send("ServiceWorker.deliverPushMessage", given)

    def shown(self) -> list[dict[str, Any]]:
        """Return the notifications that stand on the screen."""
        return self.page.evaluate(
            """async () => (await (await navigator.serviceWorker.getRegistration("/ui/")).getNotifications())
            .map(({ title, body, tag, actions, silent }) => ({ title, body, tag, actions, silent }))"""
        )

    def until_shown(self, fits: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Wait until what stands on the screen fits; a worker is at work elsewhere."""
        deadline = time.monotonic() + 15
        while not fits(found := self.shown()):
            assert time.monotonic() < deadline, found
            self.page.wait_for_timeout(20)
        return found


@pytest.fixture
def phone(served: Served, service: PushService, person_at: PersonAt) -> Phone:
    """A phone on which an approver has switched push messages on; its page is not looked at."""
    page, watch = person_at(served, "approver", **PHONE, **ALLOWED)
    watch.expect("403|ERR_CONNECTION")
    stub = STUB.replace("ADDRESS", json.dumps(service.address)).replace(
        "KEYS", json.dumps(service.device.keys)
    )
    page.add_init_script(stub)
    page.goto(DEVICES)
    page.get_by_label("Name of this device").fill("Anna's phone")
    page.get_by_role("button", name="Notify this device").click()
    expect(page.locator("[data-push-device]")).to_contain_text("Anna's phone")
    expect(page.locator("[data-push-here]")).to_be_visible()
    found = Phone(page, service)
    [key] = served.sql("SELECT public_key FROM push_keys")
    found.service.public_key = key[0]
    found.cdp.send("Emulation.setFocusEmulationEnabled", {"enabled": False})
    found.lay_aside()
    return found


def test_a_locked_phone_hears_of_a_request_within_two_seconds_of_its_commit(
    served: Served, phone: Phone
) -> None:
    """The fastest of three: this machine runs the phone, the push service and other tests as well."""
    took = []
    for number in range(1, 4):
        request_id = asked(served, target_resource=f"api.locked-{number}")
        committed = time.time()
        told = phone.push()
        notes = phone.until_shown(lambda notes, number=number: len(notes) == number)
        took.append(time.time() - committed)
        [note] = [one for one in notes if one["tag"] == request_id]
        assert "asks for" in note["title"]
        assert note["body"].startswith(f"api.locked-{number}")
        assert [one["action"] for one in note["actions"]] == ["deny"]
        assert (told["id"], told["waiting"]) == (request_id, number)
        if took[-1] < 2:
            break
    assert min(took) < 2, took
    assert phone.service.refused == []


def test_the_app_can_be_installed(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "approver", **PHONE)
    cdp = page.context.new_cdp_session(page)
    found = cdp.send("Page.getAppManifest")
    assert (found["url"], found["errors"]) == (f"{served.url}/ui/manifest.webmanifest", [])
    problems = cdp.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [one for one in problems if one["errorId"] != "in-incognito"] == []  # as all contexts of tests are
    for icon in json.loads(found["data"])["icons"]:
        drawn = page.evaluate(
            "async (src) => { const one = await createImageBitmap(await (await fetch(src)).blob());"
            " return `${one.width}x${one.height}`; }",
            icon["src"],
        )
        assert drawn == icon["sizes"]


def test_deny_from_the_notification_decides_exactly_what_it_showed(served: Served, phone: Phone) -> None:
    request_id = asked(served, target_resource="api.denied")
    phone.push()
    phone.until_shown(lambda notes: len(notes) == 1)
    phone.worker.evaluate(
        "async () => { for (const n of await registration.getNotifications()) await deny(n.data); }"
    )
    row = served.sql(
        "SELECT status, approved_by FROM permission_requests WHERE request_id = ?", (request_id,)
    )
    assert row == [("denied", "approver")]
    [note] = phone.shown()
    assert (note["title"].partition(":")[0], note["body"].splitlines()[-1]) == ("Denied", "You denied it.")
    assert (note["actions"], note["silent"]) == ([], True)


def test_deny_decides_nothing_once_the_request_is_another_or_the_proof_is_gone(
    served: Served, phone: Phone
) -> None:
    request_id = asked(served, target_resource="api.before")
    told = phone.push()
    deny = "async (told) => { await deny(told); }"
    phone.worker.evaluate(deny, told | {"judged": ""})
    served.sql("UPDATE permission_requests SET target_resource = 'api.after'")
    phone.worker.evaluate(deny, told)
    [note] = phone.until_shown(lambda notes: notes[-1]["title"] == "Nothing was denied")
    assert "not what your page showed" in note["body"]
    phone.worker.evaluate("async () => (await caches.open(KEPT)).delete(PROOF)")
    phone.worker.evaluate(deny, told)
    [note] = phone.until_shown(lambda notes: "Enter your password" in notes[-1]["body"])
    row = served.sql("SELECT status FROM permission_requests WHERE request_id = ?", (request_id,))
    assert row == [("pending",)]


def test_what_is_decided_elsewhere_leaves_the_screen_and_the_icons_number(
    served: Served, phone: Phone
) -> None:
    phone.worker.evaluate("() => { navigator.setAppBadge = async (n) => { self.badge = n; };"
                          " navigator.clearAppBadge = async () => { self.badge = 0; }; }")  # fmt: skip
    for name in ("api.one", "api.two"):
        asked(served, target_resource=name)
        told = phone.push()
    phone.until_shown(lambda notes: len(notes) == 2)
    assert phone.worker.evaluate("() => self.badge") == 2
    served.sql("UPDATE permission_requests SET status = 'withdrawn' WHERE target_resource = 'api.one'")
    phone.page.bring_to_front()  # shown again, the page asks the worker to look
    phone.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    [left] = phone.until_shown(lambda notes: len(notes) == 1)
    assert "api.two" in left["body"]
    assert phone.worker.evaluate("() => self.badge") == 1
    phone.lay_aside()
    verdict = {"id": told["id"], "judged": told["judged"]}
    assert served.sign_in("approver2").post("/ui/push/deny/", data=verdict).status_code == 204
    assert phone.push()["kind"] == "closed"
    [note] = phone.until_shown(lambda notes: len(notes) == 1 and notes[0]["silent"])
    assert note["body"].endswith("Approver2 denied it just now.")
    assert (note["tag"], note["actions"]) == (told["id"], [])


def test_a_press_opens_the_card_in_the_inbox_that_is_open(served: Served, phone: Phone) -> None:
    request_id = asked(served, target_resource="api.opened")
    told = phone.push()
    phone.page.goto("/ui/approvals/")
    phone.worker.evaluate("async (path) => { await open(path); }", told["url"])
    phone.page.wait_for_url(f"**/ui/approvals/{request_id}/")
    expect(phone.page.locator("article.ask")).to_contain_text("api.opened")


def test_without_the_server_the_last_list_is_shown_as_old_and_decides_nothing(
    served: Served, phone: Phone
) -> None:
    asked(served, target_resource="api.kept")
    phone.push()
    phone.until_shown(lambda notes: len(notes) == 1)
    served.stop()
    page = phone.page
    page.goto("/ui/approvals/")
    expect(page.get_by_role("heading", name="Signalbox cannot be reached")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("Old list, from")
    expect(page.get_by_role("status")).to_contain_text("just now")
    expect(page.get_by_role("listitem")).to_contain_text("api.kept")
    assert page.get_by_role("button").all_inner_texts() == ["Try again"]
    assert page.locator("form, a[href*='decide']").count() == 0
    served.start()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("article.ask")).to_contain_text("api.kept")


def test_a_new_release_replaces_the_worker_and_open_pages_are_told(
    served: Served, phone: Phone, tmp_path_factory: pytest.TempPathFactory
) -> None:
    page = phone.page
    before = page.get_attribute("body", "data-release")
    served.stop()
    static = served.folder / "static"
    if static.is_symlink():
        source = static.resolve()
        static.unlink()
        shutil.copytree(source, static)
    manifest = static / "staticfiles.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"hash": uuid.uuid4().hex}))
    served.start()
    page.evaluate("async () => (await navigator.serviceWorker.getRegistration('/ui/')).update()")
    expect(page.locator("#toasts")).to_contain_text("Signalbox was updated. Reload the page")
    shells = page.evaluate("async () => (await caches.keys()).filter((name) => name.includes('shell'))")
    page.reload()
    after = page.get_attribute("body", "data-release")
    assert after != before
    assert shells == [f"signalbox-shell-{after}"]
    expect(page.locator("#toasts")).not_to_contain_text("updated")


def test_signing_out_leaves_nothing_behind(served: Served, phone: Phone) -> None:
    asked(served, target_resource="api.private")
    phone.push()
    phone.until_shown(lambda notes: len(notes) == 1)
    page = phone.page
    while page.evaluate("async () => (await (await caches.open('signalbox-kept')).keys()).length") < 2:
        page.wait_for_timeout(20)  # the proof is there, the list comes
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/ui/sign-in/")
    assert served.sql("SELECT count(*) FROM push_subscriptions") == [(0,)]
    expect(page.get_by_label("Username")).to_be_visible()
    assert phone.shown() == []
    assert page.evaluate("localStorage.getItem('test-subscription')") is None
    assert page.evaluate("caches.has('signalbox-kept')") is False


WHY_NOT = {
    "Object.defineProperty(Notification, 'permission', { get: () => 'denied' })": "You have blocked",
    "Object.defineProperty(window, 'isSecureContext', { get: () => false })": "only over HTTPS",
    "delete window.PushManager": "This browser has no push messages",
    "": "Be told of waiting requests here",
}


def test_the_page_says_why_it_cannot_be_switched_on(served: Served, person_at: PersonAt) -> None:
    signed_in, _ = person_at(served, "approver")
    for script, words in WHY_NOT.items():
        page = signed_in.context.new_page()
        page.add_init_script(script)
        page.goto(DEVICES)
        expect(page.locator("[data-push-state]:visible")).to_contain_text(words)
        expect(page.locator("[data-push-form]")).to_be_visible(visible=not script)


def test_a_push_service_out_of_reach_is_told_and_the_switch_stays_off(
    served: Served, person_at: PersonAt
) -> None:
    page, _ = person_at(served, "approver", **ALLOWED)
    page.add_init_script(
        "PushManager.prototype.subscribe = async () => { throw new DOMException('no', 'AbortError'); }"
    )
    page.goto(DEVICES)
    page.get_by_role("button", name="Notify this device").click()
    expect(page.get_by_role("alert")).to_contain_text("could not reach its push service")
    assert served.sql("SELECT count(*) FROM push_subscriptions") == [(0,)]


def test_the_worker_hides_from_no_page_that_a_person_came_from_another_site(
    served: Served, phone: Phone
) -> None:
    """Such a page waits a moment before it changes anything (static/js/proof.js)."""
    page = phone.page
    page.goto("/ui/approvals/")
    assert page.evaluate("navigator.serviceWorker.controller !== null")
    expect(page.locator("meta[name=from-elsewhere]")).to_have_count(0)
    page.goto(f"{phone.service.url.replace('127.0.0.1', 'localhost')}/?{served.url}/ui/approvals/")
    page.get_by_role("link", name="go").click()
    page.wait_for_url("**/ui/approvals/")
    expect(page.locator("meta[name=from-elsewhere]")).to_have_count(1)
