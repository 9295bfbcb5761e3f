"""What every answer carries, and what a browser and a log may never get to see of a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.test import Client

from tests.guards.callers import browser, people
from tests.guards.table import API, PAGES
from tests.guards.test_every_url import every_route, path_of
from tests.served import KEYS, PEOPLE, PROOF, Served, Template, running

SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
PLACES = [
    ("GET", "/ui/", 302),
    ("GET", "/ui/sign-in/", 200),
    ("GET", "/ui/nowhere/", 404),
    ("GET", "/admin/", 302),
    ("GET", "/api/docs", 200),
    ("GET", "/api/openapi.json", 200),
    ("GET", "/health", 200),
    ("GET", "/nowhere", 404),
    ("DELETE", "/health", 405),
    ("GET", "/sse/sessions", 401),
    ("GET", "/ui/live/?topics=runs", 401),
    ("GET", "/runner/runs", 401),
    ("POST", "/sessions/x/events", 401),
    ("POST", "/v1/logs", 401),
    ("POST", "/ui/sign-in/", 403),
]


@pytest.mark.served
def test_every_answer_of_the_server_is_safe_to_open(box: Served) -> None:
    client = box.client(key=None)
    for method, path, status in PLACES:
        answer = client.request(method, path)
        assert (path, answer.status_code) == (path, status)
        assert {name: answer.headers.get(name) for name in SAFE} == SAFE, path
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path
        assert "camera=()" in answer.headers["permissions-policy"], path
        assert answer.headers["x-frame-options"] == "DENY", path
        for name in ("content-security-policy", "x-frame-options", "x-content-type-options"):
            assert answer.headers.get_list(name) == [answer.headers[name]], path  # once


@pytest.mark.served
def test_a_stream_and_a_style_sheet_are_as_safe(box: Served) -> None:
    with box.client("read").stream("GET", "/sse/sessions") as stream:
        assert stream.headers["content-security-policy"].startswith("default-src 'none'")
        assert stream.headers["x-content-type-options"] == "nosniff"
    page = box.client(key=None).get("/ui/sign-in/").text
    sheet = box.client(key=None).get(page.partition('<link rel="stylesheet" href="')[2].partition('"')[0])
    assert (sheet.status_code, sheet.headers["x-content-type-options"]) == (200, "nosniff")


@pytest.mark.served
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/sessions"),
        ("GET", "/runner/runs?runner_id=x"),
        ("POST", "/api/events"),
        ("GET", "/ui/live/?topics=runs"),
        ("POST", "/sessions/x/events"),
        ("GET", "/api/permission-requests/x/wait"),
        ("POST", "/v1/logs"),
        ("GET", "/health/"),
    ],
)
def test_a_key_in_the_address_opens_nothing_but_the_stream(box: Served, method: str, path: str) -> None:
    mark = "&" if "?" in path else "?"
    answer = box.client(key=None).request(method, f"{path}{mark}api_key={KEYS['all']}")
    assert answer.status_code in {401, 404}


@pytest.mark.served
def test_no_key_is_ever_logged_nor_told_in_an_answer(box: Served) -> None:
    """The log of this server tells everything there is to tell (DEBUG)."""
    client, wrong = box.client(key=None), "sbx_wrong-but-secret-all-the-same"
    with client.stream("GET", f"/sse/sessions?api_key={KEYS['read']}") as stream:
        assert stream.status_code == 200
    answers = [
        client.get(f"/sse/sessions?api_key={wrong}"),
        client.get(f"/nowhere?api_key={wrong}"),
        client.get("/sessions", headers={"X-API-Key": wrong}),
        client.post("/sessions/x/events", headers={"Authorization": f"Bearer {wrong}"}, json={}),
        client.get(f"/sse/sessions?api_key={wrong}&session_id=%00"),
    ]
    told = box.output() + "".join(answer.text + str(answer.headers) for answer in answers)
    assert wrong not in told
    assert not [key for key in KEYS.values() if key in told]
    audited = box.sql("SELECT reason, target_id, metadata FROM audit_logs")
    assert audited
    assert wrong not in str(audited)


@pytest.mark.django_db
def test_no_form_of_any_page_is_taken_without_the_pages_token() -> None:
    client = browser(people()["superuser"])
    client.handler.enforce_csrf_checks = True
    pages = [
        route
        for name, route in every_route()
        if name in PAGES and "POST" in PAGES[name][1] and name != "home"
    ]
    assert len(pages) > 40
    taken = {route: client.post(path_of(route)).status_code for route in pages}
    assert {route: status for route, status in taken.items() if status != 403} == {}


@pytest.mark.django_db
def test_what_people_may_do_at_the_api_takes_the_token_too() -> None:
    client = browser(people()["superuser"])
    client.handler.enforce_csrf_checks = True
    for row in [row for row, who in API.items() if who == "people"]:
        method, _, route = row.partition(" ")
        answer = client.generic(method, path_of(route), b"{}", "application/json")
        assert answer.status_code == 403


@pytest.mark.django_db
def test_the_machine_api_needs_no_token_because_no_cookie_opens_it() -> None:
    client = browser(people()["superuser"])
    closed = [row for row, who in API.items() if who not in {"anyone", "people"}]
    statuses = {client.generic(row.split()[0], path_of(row.split()[1])).status_code for row in closed}
    assert statuses == {401}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "testserver@evil.example", "a,b", "testserver:1:2"]
)
def test_a_foreign_host_gets_no_page_and_no_link(host: str) -> None:
    answer = Client(headers={"Host": host}).get("/ui/sign-in/")
    assert answer.status_code == 400
    assert host not in answer.content.decode()


@pytest.fixture(scope="module")
def tls_box(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server behind a proxy that ends TLS, which is us."""
    folder = tmp_path_factory.mktemp("tls") / "data"
    env = {"SIGNALBOX_PUBLIC_URL": "https://box.example", "SIGNALBOX_TRUSTED_PROXIES": "127.0.0.1"}
    with running(served_template, folder, workers=1, **env) as served:
        yield served


def through_tls(box: Served, **headers: str) -> httpx.Client:
    client = box.client(key=None)
    client.headers.update({"Host": "box.example", "X-Forwarded-Proto": "https", **headers})
    return client


def signed_in_over_tls(box: Served, name: str, **headers: str) -> tuple[httpx.Client, httpx.Response]:
    client = through_tls(box, **headers)
    token = cookies_of(client.get("/ui/sign-in/"))["__Host-signalbox_csrf"][0]
    client.headers["Cookie"] = f"__Host-signalbox_csrf={token}"
    form = {"username": name, "password": PEOPLE[name], "csrfmiddlewaretoken": token, "new_proof": PROOF}
    answer = client.post("/ui/sign-in/", data=form, headers={"Referer": "https://box.example/ui/sign-in/"})
    given = cookies_of(answer)
    client.headers["Cookie"] = "; ".join(f"{cookie}={value}" for cookie, (value, _) in given.items())
    client.headers.update({"X-CSRFToken": given["__Host-signalbox_csrf"][0], "X-Signalbox-Proof": PROOF})
    return client, answer


def cookies_of(answer: httpx.Response) -> dict[str, tuple[str, set[str]]]:
    """Return each cookie that an answer sets: its value and its attributes."""
    found = {}
    for line in answer.headers.get_list("set-cookie"):
        first, *others = [part.strip() for part in line.split(";")]
        name, _, value = first.partition("=")
        found[name] = (value, {part.lower() for part in others})
    return found


@pytest.mark.served
def test_cookies_over_tls_are_this_hosts_alone_and_no_scripts(tls_box: Served) -> None:
    _, answer = signed_in_over_tls(tls_box, "viewer")
    assert answer.status_code == 302
    cookies = cookies_of(answer)
    session = cookies["__Host-signalbox_session"][1]
    assert {"secure", "httponly", "samesite=lax", "path=/"} <= session
    assert {"secure", "samesite=lax", "path=/"} <= cookies["__Host-signalbox_csrf"][1]
    assert {"secure", "httponly", "samesite=lax", "path=/ui/sign-in/"} <= cookies["signalbox_device"][1]
    assert not [one for one in session if one.startswith("domain")]


@pytest.mark.served
def test_over_tls_every_answer_asks_for_tls_and_plain_pages_lead_there(tls_box: Served) -> None:
    for path in ("/ui/sign-in/", "/sse/sessions", "/nowhere", "/api/docs"):
        answer = through_tls(tls_box).get(path)
        assert answer.headers["strict-transport-security"].startswith("max-age=31536000"), path
    plain = tls_box.client(key=None)
    plain.headers["Host"] = "box.example"
    answer = plain.get("/ui/")
    assert (answer.status_code, answer.headers["location"]) == (301, "https://box.example/ui/")


@pytest.mark.served
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Referer": "https://evil.example/"}, 403),
        ({"Referer": "http://box.example/"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "https://box.example.evil.example"}, 403),
        ({"Origin": "https://box.example"}, 302),
        ({"Referer": "https://box.example/ui/"}, 302),
    ],
)
def test_over_tls_a_form_must_come_from_here(tls_box: Served, headers: dict[str, str], status: int) -> None:
    client, _ = signed_in_over_tls(tls_box, "viewer")
    assert client.post("/ui/account/theme/", data={"theme": "dark"}, headers=headers).status_code == status


@pytest.mark.served
def test_an_address_in_a_header_is_believed_of_a_proxy_alone(tls_box: Served, box: Served) -> None:
    for served, seen in ((tls_box, "203.0.113.7"), (box, "127.0.0.1")):
        client = served.client(key=None)
        client.headers.update({"X-Forwarded-For": "198.51.100.1, 203.0.113.7", "X-Forwarded-Proto": "https"})
        client.get("/runs", headers={"X-API-Key": "sbx_wrong"})
        rows: list[Any] = served.sql(
            "SELECT reason FROM audit_logs WHERE event_type = 'API_KEY_REFUSED' ORDER BY id"
        )
        assert rows[-1][0] == f"from {seen}"


@pytest.mark.served
def test_a_new_password_ends_every_other_session_at_once_and_its_stream(tls_box: Served) -> None:
    here, _ = signed_in_over_tls(tls_box, "approver2")
    there, _ = signed_in_over_tls(tls_box, "approver2")
    form = {
        "old_password": PEOPLE["approver2"],
        "new_password1": "eleven-quiet-signals",
        "new_password2": "eleven-quiet-signals",
    }
    with there.stream("GET", "/ui/live/?topics=sessions") as stream:
        lines = stream.iter_lines()
        assert next(lines)
        answer = here.post("/ui/account/password/", data=form, headers={"Origin": "https://box.example"})
        assert answer.status_code == 302
        assert list(lines) is not None  # it ends; were it held open, the client's timeout would fail this
    assert there.get("/ui/").status_code == 302
    renewed = cookies_of(answer)["__Host-signalbox_session"][0]
    assert here.get("/ui/", headers={"Cookie": f"__Host-signalbox_session={renewed}"}).status_code == 200
