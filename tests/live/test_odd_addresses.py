"""What no column holds is a caller's fault at the edge's doors as at Django's, never a 500."""

from __future__ import annotations

import json

import pytest

from tests.live.connections import bearer, connect
from tests.served import Served

pytestmark = pytest.mark.served


@pytest.mark.parametrize(
    "address",
    [
        "/api/permission-requests/%00/wait?timeout=0",
        "/api/chat/%00/messages/wait?timeout=0",
        "/runner/runs?runner_id=%00",
        "/sse/sessions?session_id=%00",
    ],
)
def test_a_nul_character_in_an_address_is_refused(shared: Served, address: str) -> None:
    scope = "runner" if address.startswith("/runner") else "agent"
    connection = connect(shared)
    connection.request("GET", address, headers=bearer(scope))
    assert connection.getresponse().status == 400


def test_a_nul_character_in_the_session_cookie_is_nobodys(shared: Served) -> None:
    connection = connect(shared)
    cookie = {"Cookie": 'signalbox_session="aaaaaaaa\\000b"'}
    connection.request("GET", "/ui/live/?topics=runs", headers=cookie)
    assert connection.getresponse().status == 401


def test_a_refusal_may_quote_a_lone_surrogate(shared: Served) -> None:
    connection = connect(shared)
    body = '{"agent_id": "a", "server_id": "s\\ud800", "tool_name": "t"}'
    connection.request("POST", "/api/access/check", body=body, headers=bearer("agent"))
    answer = connection.getresponse()
    assert (answer.status, bool(json.loads(answer.read())["detail"])) == (422, True)
