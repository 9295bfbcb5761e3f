"""Two servers on one PostgreSQL, each request to another one: nothing sticks to the server that it began at."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.approvals.cards import served_form
from tests.approvals.test_wait import URL, Waiter, asked
from tests.gateway.agents import AGENT, Wire, furnish
from tests.gateway.example_server import running as example_running
from tests.live.connections import Stream, make_session, message
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
