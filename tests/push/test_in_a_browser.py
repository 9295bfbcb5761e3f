"""Signalbox as an app in a real Chromium: installed, subscribed, told within two seconds, updated, and offline.

No browser of a test reaches a push service. So `subscribe` gives a subscription to a push service of ours, with keys
that we hold; what it takes from Signalbox, checked and opened, is handed to the real service worker by CDP.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from playwright.sync_api import CDPSession, Page, Worker, expect

from coordinator.actions.notifications import push
from tests.approvals.test_wait import asked
from tests.browser import PHONE, Watch, sign_in
from tests.patience import until
from tests.push.service import PushService, push_service
from tests.served import PEOPLE, Served, Template, children_of, running

pytestmark = [pytest.mark.browser, pytest.mark.served, pytest.mark.one_engine]
NEEDS_WHOLE_BROWSER = True  # for notifications
PersonAt = Callable[..., tuple[Page, Watch]]
T = TypeVar("T")
SIGN_IN = "Sign in to see waiting requests"
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


# How many messages the worker has shown.
COUNT_SHOWN = """() => {
  if (self.shows === undefined) {
    const real = show;
    self.shows = 0;
    show = async (told) => { await real(told); self.shows += 1; };
  }
  return self.shows;
}"""


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
        focused = "async () => (await windows()).some((page) => page.focused)"
        self.until(lambda: not self.worker.evaluate(focused), "the page is looked at")

    def push(self) -> dict[str, Any]:
        """Hand the next message over as the browser would, and return it."""
        _, _, told = self.service.next()
        self.deliver(told)
        return told

    def until(self, check: Callable[[], T], what: str | Callable[[], object]) -> T:
        """Wait until `check` gives something true, while the browser goes on."""
        return until(check, what, rest=lambda: self.page.wait_for_timeout(20))

    def until_listed(self, words: str) -> None:
        """Wait until the list that the phone keeps says `words`."""
        self.until(lambda: words in (self.kept_list() or ""), self.kept_list)

    def kept_list(self) -> str | None:
        """Return the list that the phone keeps, as it is kept."""
        return self.page.evaluate("async () => (await caches.match('/ui/push/waiting/'))?.text()")

    def deliver(self, told: dict[str, Any]) -> None:
        origin = self.page.evaluate("location.origin")
        number = self.registrations[f"{origin}/ui/"]
        given = {"origin": origin, "registrationId": number, "data": json.dumps(told)}
        before = self.worker.evaluate(COUNT_SHOWN)
        self.cdp.send("ServiceWorker.deliverPushMessage", given)
        self.until(lambda: self.worker.evaluate(COUNT_SHOWN) != before, "nothing was shown")

    def shown(self) -> list[dict[str, Any]]:
        """Return the notifications that stand on the screen, asked for in turn with the worker's own work on them."""
        return self.worker.evaluate(
            """async () => (await inTurn(() => self.registration.getNotifications()))
            .map(({ title, body, tag, actions, silent }) => ({ title, body, tag, actions, silent }))"""
        )

    def until_shown(self, fits: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Wait until what stands on the screen fits; a worker is at work elsewhere."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = self.shown()
            return fits(found)

        self.until(look, lambda: [(one["title"], one["body"]) for one in found])
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
    """The fastest of five: this machine runs the phone, the push service and other tests as well."""
    took = []
    for number in range(1, 6):
        request_id = asked(served, target_resource=f"api.locked-{number}")
        committed = time.time()
        told = phone.push()
        notes = phone.until_shown(lambda notes, number=number: len(notes) == number)
        took.append(time.time() - committed)
        [note] = [one for one in notes if one["tag"] == request_id]
        assert note["title"] == f"Allow api.locked-{number} (NetworkAccess)"
        assert note["body"].startswith("Asked by ")
        assert [one["action"] for one in note["actions"]] == ["deny"]
        assert (told["id"], told["waiting"]) == (request_id, number)
        if took[-1] < 2:
            break
    assert min(took) < 2, took
    assert phone.service.refused == []


def test_the_app_can_be_installed(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "approver", **PHONE)
    page.goto("/ui/")
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
    [note] = phone.until_shown(lambda notes: notes != [] and notes[-1]["title"] == "Nothing was denied")
    assert "differs from what your page showed" in note["body"]
    phone.worker.evaluate("async () => (await caches.open(KEPT)).delete(PROOF)")
    phone.worker.evaluate(deny, told)
    [note] = phone.until_shown(lambda notes: notes != [] and "Enter your password" in notes[-1]["body"])
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
    assert "api.two" in left["title"]
    assert phone.worker.evaluate("() => self.badge") == 1
    phone.lay_aside()
    verdict = {"id": told["id"], "judged": told["judged"]}
    assert served.sign_in("approver2").post("/ui/push/deny/", data=verdict).status_code == 204
    assert phone.push()["kind"] == "closed"
    [note] = phone.until_shown(lambda notes: len(notes) == 1 and notes[0]["silent"])
    assert note["body"].endswith("Approver2 denied it just now.")
    assert (note["tag"], note["actions"]) == (told["id"], [])
    phone.until(lambda: phone.worker.evaluate("() => self.badge") == 0, "the number stays")


def test_deny_decides_nothing_for_who_is_signed_out(served: Served, phone: Phone) -> None:
    request_id = asked(served, target_resource="api.signed-out")
    told = phone.push()
    phone.until_listed("api.signed-out")
    phone.page.context.clear_cookies()
    phone.worker.evaluate("async (told) => { await deny(told); }", told)
    [note] = phone.until_shown(lambda notes: notes != [] and notes[-1]["title"] == "Nothing was denied")
    assert note["body"].startswith("You are signed out")  # and nothing of the request
    phone.worker.evaluate("async () => { await look(); }")  # as an open page asks for
    assert [one["title"] for one in phone.shown()] == ["Nothing was denied"]
    row = served.sql("SELECT status FROM permission_requests WHERE request_id = ?", (request_id,))
    assert row == [("pending",)]


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
    phone.until_listed("api.kept")
    served.stop()
    page = phone.page
    page.bring_to_front()
    page.add_init_script("window.setInterval = () => 0")  # it does not look by itself: somebody presses
    page.goto("/ui/approvals/")
    expect(page.get_by_role("heading", name="Signalbox cannot be reached")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("Saved list from")
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
    phone.until_listed("api.private")
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/ui/sign-in/")
    assert served.sql("SELECT count(*) FROM push_subscriptions") == [(0,)]
    expect(page.get_by_label("Username")).to_be_visible()
    assert phone.shown() == []
    assert page.evaluate("localStorage.getItem('test-subscription')") is None
    assert page.evaluate("caches.has('signalbox-kept')") is False


def test_a_phone_whose_session_ended_says_only_that_one_should_sign_in(served: Served, phone: Phone) -> None:
    asked(served, target_resource="api.first")
    phone.push()
    phone.until_listed("api.first")
    phone.page.context.clear_cookies()  # as after two weeks
    for number in range(2):
        asked(served, target_resource=f"api.secret-{number}")
        phone.push()
        [note] = phone.until_shown(lambda notes: [one["title"] for one in notes] == [SIGN_IN])
        assert (note["body"], note["actions"], note["silent"]) == (
            "You are signed out on this device.",
            [],
            True,
        )
    assert phone.page.evaluate("caches.has('signalbox-kept')") is False
    phone.worker.evaluate("async () => { await look(); }")  # as an open page asks for
    assert [one["title"] for one in phone.shown()] == [SIGN_IN]
    with phone.page.context.new_page() as beside:
        sign_in(beside, "approver")
    phone.worker.evaluate("async () => { await look(); }")
    assert phone.shown() == []


SHOWN_AND_ASKED_FOR = """async () => {
  let asks = true;
  const asking = (async () => { while (asks) await takeAway(() => false); })();
  for (let number = 0; number < 60; number += 1) await show({ kind: "closed", id: `${number}`, title: "A request" });
  asks = false;
  await asking;
  return (await inTurn(() => self.registration.getNotifications())).length;
}"""


def test_a_message_shown_while_another_looks_at_the_screen_is_not_forgotten(
    served: Served, phone: Phone
) -> None:
    """A press on one that Chromium has forgotten does nothing."""
    assert phone.worker.evaluate(SHOWN_AND_ASKED_FOR) == 60


@contextmanager
def silent(served: Served) -> Iterator[None]:
    """The server takes connections, and answers nothing."""
    assert served.process is not None
    processes = [served.process.pid]
    for one in processes:
        processes.extend(children_of(one))
    for one in processes:
        os.kill(one, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in processes:
            os.kill(one, signal.SIGCONT)


def test_a_message_is_shown_though_the_server_answers_nothing(served: Served, phone: Phone) -> None:
    """Chromium waits 90 s for a picture."""
    asked(served, target_resource="api.hanging")
    _, _, told = phone.service.next()
    phone.cdp.send("Network.enable")
    phone.cdp.send("Network.clearBrowserCache")
    with silent(served):
        phone.deliver(told)  # which waits for a minute
        assert [one["tag"] for one in phone.shown()] == [told["id"]]


# Patience ends when the test says so, and no Deny is answered.
DENY_HANGS = """() => {
  const fetched = self.fetch.bind(self);
  self.bounds = [];
  self.denies = 0;
  AbortSignal.timeout = () => {
    self.bounds.push(new AbortController());
    return self.bounds.at(-1).signal;
  };
  self.fetch = (url, options) => {
    if (!url.includes("deny")) return fetched(url, options);
    self.denies += 1;
    return new Promise((_, fail) => options.signal?.addEventListener("abort", () => fail(options.signal.reason)));
  };
}"""
LOSE_PATIENCE = "() => self.bounds.splice(0).forEach((one) => one.abort())"


def test_a_deny_that_nobody_answers_says_so(served: Served, phone: Phone) -> None:
    request_id = asked(served, target_resource="api.hanging")
    told = phone.push()
    phone.worker.evaluate(DENY_HANGS)
    with silent(served):
        phone.worker.evaluate("(told) => { deny(told); }", told)
        [note] = phone.until_shown(lambda notes: notes[0]["title"].startswith("Denying: "))
        assert note["body"].endswith("Signalbox has not answered yet.")
        phone.until(lambda: phone.worker.evaluate("() => self.bounds.length"), "it waits without end")
        phone.worker.evaluate(LOSE_PATIENCE)
        [note] = phone.until_shown(lambda notes: notes[0]["title"] == "Nothing was denied")
        assert "Signalbox cannot be reached." in note["body"]
    phone.worker.evaluate("(told) => { deny(told); }", told)
    phone.until(lambda: phone.worker.evaluate("() => self.denies"), "no Deny was sent")
    phone.worker.evaluate(LOSE_PATIENCE)
    [note] = phone.until_shown(lambda notes: notes[0]["title"] == "No answer to your denial")
    assert note["body"].endswith("It may have arrived. Open the request to check.")
    row = served.sql("SELECT status FROM permission_requests WHERE request_id = ?", (request_id,))
    assert row == [("pending",)]


@pytest.mark.parametrize("status", [400, 404, 429, 503])
def test_an_answer_that_is_no_refusal_makes_the_phone_forget_nothing(
    served: Served, phone: Phone, status: int
) -> None:
    asked(served, target_resource="api.kept")
    phone.push()
    phone.until_listed("api.kept")
    phone.worker.evaluate(f"() => {{ self.fetch = async () => new Response('', {{ status: {status} }}); }}")
    asked(served, target_resource="api.second")
    phone.push()
    phone.until_shown(lambda notes: len(notes) == 2)
    phone.worker.evaluate("async () => { await look(); }")
    assert len(phone.shown()) == 2
    assert "api.kept" in (phone.kept_list() or "")


# Two looks, the second begun once the first has asked: what a look reads before it asks may end in any order.
TWO_LOOKS = """
  const waiting = [], looks = [];
  self.fetch = () => new Promise((answer) => waiting.push(answer));
  for (const number of [1, 2]) {
    looks.push(look());
    while (waiting.length < number) await new Promise((done) => setTimeout(done, 5));
  }
"""
LATE = f"""async () => {{
  {TWO_LOOKS}
  for (const [turn, id] of [[1, "newer"], [0, "older"]]) {{
    waiting[turn](new Response(JSON.stringify({{ csrf: "c", count: 1, requests: [{{ id }}] }})));
    await looks[turn];
  }}
  return (await caches.match(LIST)).text();
}}"""


SIGNED_OUT_BEFORE = f"""async () => {{
  await caches.delete(KEPT);
  {TWO_LOOKS}
  waiting[1](new Response("", {{ status: 401 }}));
  await looks[1];
  waiting[0](new Response(JSON.stringify({{ csrf: "c", count: 1, requests: [{{ id: "older" }}] }})));
  await looks[0];
  return caches.has(KEPT);
}}"""


def test_a_list_that_arrives_after_its_person_was_found_signed_out_is_not_kept(
    served: Served, phone: Phone
) -> None:
    assert phone.worker.evaluate(SIGNED_OUT_BEFORE) is False


def test_a_list_that_arrives_after_a_newer_one_is_not_kept(served: Served, phone: Phone) -> None:
    assert "newer" in phone.worker.evaluate(LATE)


@pytest.mark.parametrize("status", [401, 403])
def test_who_may_no_longer_decide_leaves_no_list_on_the_phone(
    served: Served, phone: Phone, status: int
) -> None:
    asked(served, target_resource="api.gone")
    phone.push()
    phone.until_listed("api.gone")
    phone.worker.evaluate(f"() => {{ self.fetch = async () => new Response('', {{ status: {status} }}); }}")
    phone.deliver({"kind": "closed", "id": "1", "title": "Closed", "at": "", "waiting": 0})
    phone.until_shown(lambda notes: [one["title"] for one in notes] == [SIGN_IN])
    assert phone.page.evaluate("caches.has('signalbox-kept')") is False


def test_a_push_that_comes_late_still_shows_something(served: Served, phone: Phone) -> None:
    """Browsers take the right to push from who closes at once what they showed."""
    request_id = asked(served, target_resource="api.late")
    _, _, told = phone.service.next()
    served.sql("UPDATE permission_requests SET status = 'withdrawn'")
    phone.deliver(told)
    [note] = phone.until_shown(lambda notes: notes != [] and notes[0]["silent"])
    assert (note["tag"], note["actions"]) == (request_id, [])
    assert note["body"].endswith("It is no longer waiting.")


def test_a_browser_that_ends_its_subscription_by_itself_says_so(served: Served, phone: Phone) -> None:
    phone.worker.evaluate("async () => { await move({ oldSubscription: null, newSubscription: null }); }")
    [note] = phone.shown()
    assert note["title"] == "This device is no longer notified"


@pytest.mark.parametrize("next_one", ["viewer", "approver2"])
def test_who_signs_in_next_is_not_told_what_the_former_person_was(
    served: Served, phone: Phone, next_one: str
) -> None:
    page = phone.page
    page.goto("about:blank")  # an answer on its way to the page would bring the former cookie back
    # The form's cookie stays: an answer on its way to the service worker may bring the former one back.
    page.context.clear_cookies(name=re.compile("signalbox_session"))
    page.goto("/ui/sign-in/")
    page.get_by_label("Username").fill(next_one)
    page.get_by_label("Password").fill(PEOPLE[next_one])
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/ui/")
    page.wait_for_function("() => localStorage.getItem('test-subscription') === null")
    page.wait_for_function("() => localStorage.getItem('signalbox-push') === 'off'")
    until(
        lambda: served.sql("SELECT why_ended FROM push_subscriptions") == [(push.MOVED_ON,)],
        rest=lambda: page.wait_for_timeout(20),
    )


def test_the_phone_is_tied_to_the_sign_in_again_after_a_new_password(served: Served, phone: Phone) -> None:
    page = phone.page
    [before] = served.sql("SELECT sign_in FROM push_subscriptions")
    served.sql("UPDATE push_subscriptions SET sign_in = 'of the former password'")
    page.evaluate("sessionStorage.setItem('signalbox-renewed', document.body.dataset.push)")
    page.context.clear_cookies()
    with page.context.new_page() as beside:
        sign_in(beside, "approver")
    page.goto("/ui/approvals/")
    page.wait_for_function("() => sessionStorage.getItem('signalbox-renewed').includes(' ')")
    assert served.sql("SELECT sign_in FROM push_subscriptions") == [before]
    page.reload()
    assert page.get_attribute("body", "data-push") == push.hash_device_address(phone.service.address)


WHY_NOT = {
    "Object.defineProperty(Notification, 'permission', { get: () => 'denied' })": "You have blocked",
    "Object.defineProperty(window, 'isSecureContext', { get: () => false })": "only over HTTPS",
    "delete window.PushManager": "This browser does not support push messages",
    "": "Get notified of waiting requests on this device",
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
