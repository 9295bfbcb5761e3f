"""Two servers on one PostgreSQL, each request to another one: nothing sticks to the server that it began at."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.approvals.cards import served_form
from tests.approvals.test_wait import URL, Waiter, asked
from tests.claude_code.double import Claude
from tests.gateway.agents import AGENT, Wire, furnish
from tests.gateway.example_server import running as example_running
from tests.live.connections import Stream, make_session, message
from tests.patience import AT_ONCE, until
from tests.served import Served, Template, postgres_url

pytestmark = [
    pytest.mark.served,
    pytest.mark.skipif(postgres_url() is None, reason="a file has one server"),
]


class Second(Served):
    """A server beside another one, on the same database, with a data folder of its own."""

    def __init__(self, template: Template, folder: Path, beside: Served, **env: str) -> None:
        super().__init__(template, folder, workers=1, env={"DATABASE_URL": beside.env["DATABASE_URL"], **env})


@pytest.fixture
def pair(served_template: Template, tmp_path: Path) -> Iterator[tuple[Served, Served]]:
    keys = {"SIGNALBOX_CREDENTIAL_KEYS": str(tmp_path / "credential_keys")}
    one = Served(served_template, tmp_path / "one", workers=1, env=keys)
    other = Second(served_template, tmp_path / "other", one, **keys)
    try:
        one.start()
        other.start()
        yield one, other
    finally:
        other.close()
        one.close()


def at(server: Served, browser: httpx.Client) -> httpx.Client:
    """Return the same browser, balanced to another server."""
    there = server.client(key=None, follow_redirects=True)
    there.cookies.update(browser.cookies)
    there.headers.update({**browser.headers, "referer": server.url, "origin": server.url})
    return there


def test_nothing_sticks_to_a_server(pair: tuple[Served, Served]) -> None:
    one, other = pair
    # A sign-in, and a change under it.
    browser = one.sign_in("admin")
    there = at(other, browser)
    assert there.get("/ui/").status_code == 200

    # A connect code: made here, exchanged there, used here.
    page = there.post("/ui/connections/code/", data={"name": "laptop"}).text
    code = re.search(r"\b[0-9A-Z]{4}(?:-[0-9A-Z]{4})+\b", page)
    assert code is not None, page
    key = (
        one.client(key=None)
        .post("/api/connect/exchange", json={"code": code[0], "host": "laptop"})
        .json()["key"]
    )
    programs = other.client(key=None)
    programs.headers["Authorization"] = f"Bearer {key}"
    assert programs.post(
        URL, json={"plugin_id": "p", "permission_type": "x", "justification": "y"}
    ).is_success

    # A stream that goes on at the other server exactly where it broke.
    make_session(one, "ses_000000000001")
    posts = "/sessions/ses_000000000001/events"
    stream = Stream(one, "/sse/sessions?session_id=ses_000000000001&include_init=false")
    other.client().post(posts, json=message("ses_000000000001", "heard")).raise_for_status()
    last = stream.wait(lambda frames: stream.events() and frames[-1])
    stream.close()
    other.client().post(posts, json=message("ses_000000000001", "missed")).raise_for_status()
    resumed = Stream(other, "/sse/sessions?session_id=ses_000000000001", Last_Event_ID=last.id)
    one.client().post(posts, json=message("ses_000000000001", "after")).raise_for_status()
    resumed.wait(lambda _: len(resumed.events()) == 2)
    assert [event["content"][0]["text"] for event in resumed.events()] == ["missed", "after"]
    resumed.close()

    # A session at the gateway, begun here and used there; a file, sent here and read there.
    with example_running() as example:
        furnish(one, example.url)
        wire = Wire(one)
        wire.initialize()
        wire.http.base_url = other.url
        assert "tools" in wire.response(wire.send("tools/list"))["result"]
    one.sql(
        "INSERT INTO agents (id, name, description, default_engine_id) VALUES (?, 'A', '', 'x')", (AGENT,)
    )
    sent = one.client().post(
        f"/api/chat/{AGENT}/messages", data={"text": "See"}, files={"files": ("a.txt", b"words")}
    )
    assert sent.status_code == 200, sent.text
    [(file_id,)] = one.sql("SELECT id FROM chat_attachments")
    assert other.client().get(f"/api/chat/attachments/{file_id}").content == b"words"

    # A long poll is answered by a verdict that was given at the other server, where the request was not made either;
    # and by the other server, once the one that held it is killed.
    for_one, for_other = asked(one), asked(one, target_resource="elsewhere")
    held = Waiter(one.client("agent"), for_one)
    held.start()
    there.post("/ui/approvals/decide/", data=served_form(there, for_one)).raise_for_status()
    assert held.told()["status"] == "approved"
    one.stop(signal.SIGKILL)
    held = Waiter(other.client("agent"), for_other)
    held.start()
    there.post("/ui/approvals/decide/", data=served_form(there, for_other, "denied")).raise_for_status()
    assert held.told()["status"] == "denied"
    assert one.sql("SELECT count(*) FROM permission_requests WHERE status = 'approved'") == [(1,)]


def test_a_brake_that_is_put_on_at_one_server_holds_the_next_call_at_the_other(
    pair: tuple[Served, Served],
) -> None:
    one, other = pair
    person, claude = one.sign_in("approver"), Claude(other, wait="1")
    claude.start()
    for turn in range(3):
        assert claude.call("Bash", {"command": f"make {turn}"}).outcome == "ran"
        form = {"reach": "everything", "reason": "Stop."}
        person.post("/ui/brake/put-on/", data=form).raise_for_status()
        assert claude.call("Bash", {"command": f"rm {turn}"}).outcome == "denied"
        [(brake,)] = one.sql("SELECT id FROM brakes WHERE released_at IS NULL")
        person.post(f"/ui/brake/{brake}/release/").raise_for_status()
        until(lambda: claude.call("Bash", {"command": "make"}).outcome == "ran")


def test_two_people_at_two_servers_decide_each_request_once(pair: tuple[Served, Served]) -> None:
    requests = [asked(pair[0], target_resource=f"file-{number}") for number in range(8)]
    people = [(pair[0].sign_in("approver"), "approved"), (pair[1].sign_in("approver2"), "denied")]
    forms = [[served_form(person, request, verdict) for request in requests] for person, verdict in people]

    def decide(number: int) -> None:
        for form in forms[number]:
            people[number][0].post("/ui/approvals/decide/", data=form)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(decide, range(2)))
    rows = pair[0].sql("SELECT request_id, status, approved_by FROM permission_requests ORDER BY id")
    assert {(status, by) for _, status, by in rows} <= {("approved", "approver"), ("denied", "approver2")}
    audited = pair[0].sql(
        "SELECT target_id, count(*) FROM audit_logs WHERE event_type IN ('PERMISSION_REQUEST_APPROVED',"
        " 'PERMISSION_REQUEST_DENIED') GROUP BY target_id"
    )
    assert sorted(audited) == sorted((request, 1) for request in requests)


def test_a_key_that_is_revoked_at_one_server_is_refused_at_the_other(pair: tuple[Served, Served]) -> None:
    one, other = pair
    admin, claude = one.sign_in("admin"), Claude(other)
    claude.start()
    program = other.client("agent")
    held = Waiter(program, asked(other))
    held.start()
    [(key_id,)] = one.sql("SELECT id FROM api_keys WHERE name = 'test-agent'")
    admin.post(f"/ui/keys/{key_id}/revoke/").raise_for_status()
    assert other.client("agent").get("/sessions").status_code == 401  # asks the database
    body = claude.fields("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="t")
    until(lambda: claude.http.post(claude.url, json=body, headers=claude.headers).status_code == 401)
    held.join(AT_ONCE)
    assert not held.is_alive()
