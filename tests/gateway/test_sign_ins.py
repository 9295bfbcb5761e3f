"""People sign in at MCP servers, and each agent's calls carry the token of its person, or of everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.gateway.agents import AGENT, KEY, OTHER, OTHER_KEY, Wire, furnish, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.signed_in_server import SignedInServer, running
from tests.served import Served

pytestmark = pytest.mark.served
OAUTH = ("mcp_access_tokens", "mcp_authorizations", "mcp_agent_people")


@pytest.fixture
def upstream() -> Iterator[SignedInServer]:
    with running() as found:
        yield found


@pytest.fixture
def box(served: Served, upstream: SignedInServer) -> Served:
    served.emptied(*TABLES, *OAUTH)
    furnish(served, upstream.url)
    return served


def switch_on(box: Served, mode: str, **fields: str) -> str:
    """Have an administrator switch sign-in on; return the page that answers."""
    admin = box.sign_in("admin")
    return admin.post("/ui/mcp/sign-in/save/example/", data={"mode": mode, **fields}).text


def leave_for_sign_in(client: httpx.Client) -> str:
    """Return the address at the authorization server to which a person is led."""
    page = client.post("/ui/mcp/sign-in/begin/example/").text
    found = re.search(r'class="button primary wide" href="([^"]+)"', page)
    assert found, page
    return found[1].replace("&amp;", "&")


def come_back(address: str) -> dict[str, str]:
    """Return what the authorization server sends back with the person."""
    answer = httpx.get(address)
    assert answer.status_code == 302, answer.text
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}


def sign_in(box: Served, person: str) -> str:
    """Sign a person in at the server; return the page they end on."""
    client = box.sign_in(person)
    sent = come_back(leave_for_sign_in(client))
    return client.post("/ui/mcp/sign-in/back/", data=sent).text


def choose(box: Served, agent: str, person: str) -> None:
    (user_id,) = box.sql("SELECT id FROM auth_user WHERE username = ?", (person,))[0]
    page = box.sign_in("admin").post(
        "/ui/mcp/sign-in/agent/example/", data={"agent": agent, "person": str(user_id)}
    )
    assert "Saved." in page.text


def call(box: Served, key: str = KEY) -> dict[str, Any]:
    """Call the tool that says whose token came, as an agent whose session is new."""
    wire = Wire(box, key=key, stateless=True)
    return wire.response(wire.send("tools/call", {"name": "whoami", "arguments": {}}))


def test_one_sign_in_serves_every_agent(box: Served, upstream: SignedInServer) -> None:
    assert "needs a sign-in" not in switch_on(box, "shared")
    refused = str(call(box))
    assert "an administrator must sign in on the page of the MCP server example" in refused
    assert upstream.asked["whoami"] == 0
    assert "You are signed in at example." in sign_in(box, "admin")
    assert [text_of(call(box, key)["result"]) for key in (KEY, OTHER_KEY)] == ["ada", "ada"]
    page = box.sign_in("viewer").get("/ui/mcp/servers/example/").text
    assert "renewed by itself" in page
    assert 'formaction="/ui/mcp/sign-in/begin/example/"' not in page
    stored = str(box.sql("SELECT access_token, refresh_token FROM mcp_access_tokens"))
    assert not any(token in stored + page for token in [*upstream.access, *upstream.refresh])


def test_each_person_s_own_token_goes_with_the_calls_of_their_agent(
    box: Served, upstream: SignedInServer
) -> None:
    switch_on(box, "person")
    sign_in(box, "admin")
    upstream.person = "grace"
    sign_in(box, "approver")
    assert "no person is chosen for the agent agent.one" in str(call(box))
    choose(box, AGENT, "admin")
    choose(box, OTHER, "approver")
    assert text_of(call(box)["result"]) == "ada"
    assert text_of(call(box, OTHER_KEY)["result"]) == "grace"
    box.sql("UPDATE auth_user SET is_active = ? WHERE username = 'approver'", (False,))
    try:
        assert "has no active account any more" in str(call(box, OTHER_KEY))
    finally:
        box.sql("UPDATE auth_user SET is_active = ? WHERE username = 'approver'", (True,))


def test_a_token_is_renewed_once_by_all_workers_before_it_ends(box: Served, upstream: SignedInServer) -> None:
    upstream.life = 30  # less than what is left when it is renewed
    switch_on(box, "shared")
    sign_in(box, "admin")
    upstream.life = 3600
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: text_of(call(box)["result"]), range(12)))
    assert answers == ["ada"] * 12
    assert upstream.asked["refresh"] == 1


def test_a_token_that_the_server_rejects_is_replaced_and_the_call_runs_once(
    box: Served, upstream: SignedInServer
) -> None:
    switch_on(box, "shared")
    sign_in(box, "admin")
    upstream.access.clear()
    assert text_of(call(box)["result"]) == "ada"
    assert (upstream.asked["refresh"], upstream.asked["whoami"]) == (1, 1)


def test_where_the_sign_in_ended_a_person_is_named_and_signs_in_again(
    box: Served, upstream: SignedInServer
) -> None:
    began = datetime.now(UTC).isoformat()
    switch_on(box, "shared")
    sign_in(box, "admin")
    upstream.access.clear()
    upstream.refresh.clear()
    assert "an administrator must sign in" in str(call(box)) + str(call(box))
    assert upstream.asked["whoami"] == 0
    page = box.sign_in("admin").get("/ui/mcp/").text
    assert "needs a sign-in" in page
    needed = "SELECT count(*) FROM audit_logs WHERE event_type = 'MCP_SIGN_IN_NEEDED' AND timestamp > ?"
    assert box.sql(needed, (began,)) == [(1,)]
    sign_in(box, "admin")
    assert text_of(call(box)["result"]) == "ada"


def test_signing_out_forgets_the_tokens_here_and_there(box: Served, upstream: SignedInServer) -> None:
    switch_on(box, "person")
    sign_in(box, "approver")
    ((token,),) = box.sql("SELECT id FROM mcp_access_tokens")
    stranger = box.sign_in("viewer").post("/ui/mcp/sign-in/end/example/", data={"token": str(token)})
    assert "Only an administrator can end the sign-ins of others." in stranger.text
    answer = box.sign_in("approver").post("/ui/mcp/sign-in/end/example/", data={"token": str(token)})
    assert "Signed out." in answer.text
    assert box.sql("SELECT count(*) FROM mcp_access_tokens") == [(0,)]
    assert (upstream.access, upstream.refresh) == ({}, {})


def test_no_token_goes_to_another_address(box: Served) -> None:
    switch_on(box, "shared")
    sign_in(box, "admin")
    with running() as other:
        box.sql("UPDATE mcp_upstreams SET url = ?, changed_at = '2026-02-01T00:00:00+00:00'", (other.url,))
        assert "must save its sign-in again" in str(call(box))
        assert other.asked["whoami"] == 0


def test_only_an_administrator_signs_in_for_everybody_and_no_other_browser_finishes_it(box: Served) -> None:
    switch_on(box, "shared")
    refused = box.sign_in("approver").post("/ui/mcp/sign-in/begin/example/").text
    assert "Only an administrator can sign in for everybody." in refused
    sent = come_back(leave_for_sign_in(box.sign_in("admin")))
    other = box.sign_in("admin")
    assert "started in another browser" in other.post("/ui/mcp/sign-in/back/", data=sent).text
    assert box.sql("SELECT count(*) FROM mcp_access_tokens") == [(0,)]


def test_an_answer_of_another_authorization_server_is_not_used(box: Served) -> None:
    switch_on(box, "shared")
    admin = box.sign_in("admin")
    sent = come_back(leave_for_sign_in(admin)) | {"iss": "https://attacker.example"}
    assert "came from another authorization server" in admin.post("/ui/mcp/sign-in/back/", data=sent).text
    assert box.sql("SELECT count(*) FROM mcp_access_tokens") == [(0,)]


def test_a_stolen_cookie_and_a_key_sign_nobody_in(box: Served) -> None:
    switch_on(box, "shared")
    thief = box.sign_in("admin")
    del thief.headers["X-Signalbox-Proof"]
    assert thief.post("/ui/mcp/sign-in/begin/example/").status_code == 403
    assert box.client("all").post("/ui/mcp/sign-in/begin/example/").status_code in {302, 401, 403}


def test_a_server_without_registration_says_what_to_register(served: Served) -> None:
    served.emptied(*TABLES, *OAUTH)
    with running(registers=False) as closed:
        furnish(served, closed.url)
        page = switch_on(served, "shared")
        assert "registers no clients by itself" in page
        assert "/ui/mcp/sign-in/back/" in page
        assert served.sql("SELECT count(*) FROM mcp_authorizations") == [(0,)]


def test_a_server_that_asks_for_no_sign_in_is_said_to(box: Served) -> None:
    from tests.gateway.example_server import running as open_server

    with open_server() as example:
        furnish(box, example.url)
        assert "No authorization server was found" in switch_on(box, "shared")


def test_who_must_sign_in_is_told_once(box: Served) -> None:
    switch_on(box, "shared")
    box.sql("DELETE FROM notification_log")
    box.sql("DELETE FROM notification_targets WHERE person IN ('admin', 'approver')")
    for person in ("admin", "approver"):
        box.sql(
            "INSERT INTO notification_targets (person, kind, address, created_at) VALUES (?, 'email', ?, ?)",
            (person, f"{person}@example.org", "2026-01-01T00:00:00+00:00"),
        )
    call(box)
    call(box)
    told = (
        "SELECT t.person, n.event FROM notification_log n JOIN notification_targets t ON t.id = n.target_id"
    )
    assert box.sql(told) == [("admin", "sign in")]
