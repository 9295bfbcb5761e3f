"""An agent serves a page on another port of the same host, and a person opens it: the browser sends it the cookies."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser import Watch
from tests.served import PEOPLE, Served, Template, free_port, running

pytestmark = pytest.mark.served
Visit = Callable[..., tuple[Page, Watch]]


class Preview(http.server.BaseHTTPRequestHandler):
    """The agent's page: keeps the cookies that it is sent, and sets what it was told to."""

    taken: list[str]
    planted: list[str]
    body = "<title>preview</title><h1>my app</h1>"

    def do_GET(self) -> None:
        self.taken.append(self.headers.get("Cookie", ""))
        self.send_response(200)
        for cookie in self.planted:
            self.send_header("Set-Cookie", cookie)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.body.encode())

    def log_message(self, *_said: object) -> None:
        """Say nothing."""


@pytest.fixture
def preview() -> Iterator[tuple[type[Preview], int]]:
    """The agent's server and its port."""
    handler = type("OnePreview", (Preview,), {"taken": [], "planted": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield handler, server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def own_host(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server as it is without settings: people's pages under a host name of their own."""
    with running(
        served_template, tmp_path_factory.mktemp("own-host") / "server", SIGNALBOX_PUBLIC_URL=""
    ) as server:
        yield server


def asked(served: Served) -> str:
    """Make a permission request as an agent does."""
    said = {
        "plugin_id": "agent.alpha",
        "permission_type": "Deploy",
        "justification": "please",
        "target_resource": "prod",
    }
    answer = served.client(key="agent").post("/api/permission-requests", json=said)
    return str(answer.json()["request_id"])


def status_of(served: Served, request_id: str) -> str:
    return str(served.client(key="agent").get(f"/api/permission-requests/{request_id}").json()["status"])


def signed_in_by_hand(person_at: Visit, served: Served) -> tuple[Page, Watch]:
    """Sign in as people do, through the form."""
    page, watch = person_at(served, None)
    sign_in_by_hand(page)
    return page, watch


def sign_in_by_hand(page: Page) -> None:
    page.goto("/ui/sign-in/")
    page.get_by_label("Username").fill("approver")
    page.get_by_label("Password").fill(PEOPLE["approver"])
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/ui/")


def thief(served: Served, page: Page, taken: str) -> httpx.Client:
    """Return a program with the cookies that its page was sent, which says it is that page."""
    cookies = {name: morsel.value for name, morsel in SimpleCookie(taken).items()}
    assert "signalbox_session" in cookies
    client = served.client(key=None, cookies=cookies)
    host = page.evaluate("location.host")
    client.headers.update(
        {"X-CSRFToken": cookies["signalbox_csrf"], "Host": host, "Origin": f"http://{host}"}
    )
    return client


def verdict(request_id: str) -> dict[str, Any]:
    return {"ids": request_id, "verdict": "approved", "validity": "until-revoked"}


def host_of(page: Page) -> str:
    return str(page.evaluate("location.hostname"))


@pytest.mark.parametrize("host", ["one_server", "own_host"])
def test_the_cookie_that_another_port_is_sent_decides_nothing(
    person_at: Visit, preview: tuple[type[Preview], int], request: pytest.FixtureRequest, host: str
) -> None:
    """Neither under 127.0.0.1, nor where the agent has found the host name and serves its page there."""
    served: Served = request.getfixturevalue(host)
    (agent, port), request_id = preview, asked(served)
    page, _ = signed_in_by_hand(person_at, served)
    other = page.context.new_page()
    other.goto(f"http://{host_of(page)}:{port}/")
    assert other.evaluate("localStorage.length") == 0
    client = thief(served, page, agent.taken[0])
    assert client.get("/ui/").status_code == 200
    for more in ({}, {"proof": "0" * 64}, {"confirm_password": "guess"}):
        answer = client.post("/ui/approvals/decide/", data=verdict(request_id) | more)
        assert (answer.status_code, answer.headers["signalbox-confirm"]) == (403, "password")
    assert status_of(served, request_id) == "pending"


def test_the_person_whose_cookie_was_stolen_decides_as_ever(
    person_at: Visit, one_server: Served, preview: tuple[type[Preview], int]
) -> None:
    request_id = asked(one_server)
    page, _ = signed_in_by_hand(person_at, one_server)
    page.goto(f"/ui/approvals/{request_id}/")
    page.locator(".decide").get_by_role("button", name="Approve").click()
    expect(page.locator("main")).to_contain_text("Approver approved it")
    assert status_of(one_server, request_id) == "approved"


def test_the_bare_address_leads_to_a_host_name_whose_cookies_it_does_not_get(
    person_at: Visit, own_host: Served, preview: tuple[type[Preview], int]
) -> None:
    agent, port = preview
    page, _ = signed_in_by_hand(person_at, own_host)
    assert host_of(page).startswith("signalbox-")
    for name in ("127.0.0.1", "localhost"):
        page.context.new_page().goto(f"http://{name}:{port}/")
    assert agent.taken
    assert not any("signalbox" in cookies for cookies in agent.taken)


def test_no_other_program_can_stand_at_the_address_that_browsers_ask_first(own_host: Served) -> None:
    """They look for names under `.localhost` at ::1, then at 127.0.0.1; the same port there is the same origin."""
    with socket.socket(socket.AF_INET6) as agent:
        try:
            agent.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    with socket.socket(socket.AF_INET6) as agent:
        agent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            agent.bind(("::1", own_host.port))
    ours = httpx.get(f"http://[::1]:{own_host.port}/ui/sign-in/")
    assert (ours.status_code, ours.headers["location"].partition(":")[0]) == (302, "http")


def test_a_person_decides_under_the_host_name(person_at: Visit, own_host: Served) -> None:
    request_id = asked(own_host)
    page, _ = signed_in_by_hand(person_at, own_host)
    page.goto(page.evaluate("location.origin") + f"/ui/approvals/{request_id}/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.locator(".decide").get_by_role("button", name="Approve").click()
    expect(page.locator("main")).to_contain_text("Approver approved it")


def test_a_form_sent_to_the_bare_address_is_refused_and_machines_stay_there(own_host: Served) -> None:
    stranger = own_host.client(key=None)
    assert stranger.post("/ui/sign-in/", data={"username": "approver"}).status_code == 403
    assert own_host.client(key="read").get("/runs").status_code == 200


def test_cookies_that_the_agent_plants_sign_nobody_in_as_somebody_else(
    person_at: Visit, one_server: Served, preview: tuple[type[Preview], int]
) -> None:
    """A session fixed before signing in is not the one after, and a planted one opens no forms."""
    (agent, port), request_id = preview, asked(one_server)
    agent.planted += [
        "signalbox_session=planted0planted0planted0planted0; Path=/",
        f"signalbox_csrf={'p' * 32}; Path=/",
    ]
    page, _ = person_at(one_server, None)
    page.goto(f"http://127.0.0.1:{port}/")
    sign_in_by_hand(page)
    client = one_server.client(key=None, cookies={"signalbox_session": "planted0planted0planted0planted0"})
    assert client.get("/ui/").status_code == 302
    page.goto(f"/ui/approvals/{request_id}/")
    page.locator(".decide").get_by_role("button", name="Approve").click()
    expect(page.locator("main")).to_contain_text("Approver approved it")


def test_a_browser_that_lost_its_proof_gives_the_password_and_loses_nothing(
    person_at: Visit, one_server: Served
) -> None:
    request_id = asked(one_server)
    page, watch = signed_in_by_hand(person_at, one_server)
    watch.expect("403")
    page.goto(f"/ui/approvals/{request_id}/")
    page.evaluate("localStorage.clear()")
    page.get_by_placeholder("Reason (optional)").fill("looks right")
    page.locator(".decide").get_by_role("button", name="Approve").click()
    dialog = page.locator("#password-again")
    dialog.get_by_label("Password of approver").fill("wrong")
    dialog.get_by_role("button", name="Confirm").click()
    expect(dialog).to_contain_text("Wrong password")
    dialog.get_by_label("Password of approver").fill(PEOPLE["approver"])
    dialog.get_by_role("button", name="Confirm").click()
    # What was refused is sent again as it was.
    expect(page.locator("main")).to_contain_text("Approver approved it")
    expect(page.locator("main")).to_contain_text("looks right")


@pytest.mark.parametrize("how", ["key", "click"])
def test_a_page_that_leads_to_a_request_in_the_moment_of_a_click_decides_nothing(
    person_at: Visit, one_server: Served, preview: tuple[type[Preview], int], how: str
) -> None:
    (agent, port), request_id = preview, asked(one_server)
    page, _ = signed_in_by_hand(person_at, one_server)
    agent.body = (
        f'<a href="{one_server.url}/ui/approvals/{request_id}/" rel="noreferrer">Click twice, press a</a>'
    )
    page.add_init_script("performance.now = () => 1999")
    page.goto(f"http://127.0.0.1:{port}/")
    page.get_by_role("link").click()
    button = page.locator(".decide").get_by_role("button", name="Approve")
    if how == "key":
        page.wait_for_load_state("load")
        page.keyboard.press("j")
        page.keyboard.press("a")
    else:
        button.click()
    expect(page.locator("#toasts")).to_contain_text("just arrived here")
    assert status_of(one_server, request_id) == "pending"
    page.evaluate("() => (performance.now = () => 2001) && null")
    button.click()
    expect(page.locator("main")).to_contain_text("Approver approved it")


def test_a_page_that_was_led_here_behind_a_window_that_closes_decides_nothing(
    person_at: Visit, one_server: Served, preview: tuple[type[Preview], int]
) -> None:
    """The first of two clicks closes the window in front, the second is for what lies behind it."""
    (agent, port), request_id = preview, asked(one_server)
    page, _ = signed_in_by_hand(person_at, one_server)
    agent.body = f'<a href="{one_server.url}/ui/approvals/{request_id}/" rel="noreferrer">Go</a>'
    page.add_init_script("performance.now = () => 60000")
    page.goto(f"http://127.0.0.1:{port}/")
    page.get_by_role("link").click()
    button = page.locator(".decide").get_by_role("button", name="Approve")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.evaluate("() => dispatchEvent(new Event('focus')) && null")  # as when the window in front is gone
    button.click()
    expect(page.locator("#toasts")).to_contain_text("just arrived here")
    assert status_of(one_server, request_id) == "pending"
    page.evaluate("() => (performance.now = () => 61001) && null")
    button.click()
    expect(page.locator("main")).to_contain_text("Approver approved it")
