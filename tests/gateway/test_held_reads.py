"""Reads, prompts and completions that policy asks about: a person decides, and nothing is sent before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.mcp.protocol.messages import BRAKED, DENIED
from tests.gateway import obliging_server
from tests.gateway.agents import AGENT, LONG_AGO, Wire, furnish, grant, rule
from tests.gateway.conftest import TABLES
from tests.gateway.obliging_server import Obliging
from tests.gateway.test_braked_reads import put_on
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.gateway.test_methods import READS, begun, recorded
from tests.patience import until
from tests.served import Served

pytestmark = pytest.mark.served

ASKED = {method: params for method, params in READS.items() if method != "subscriptions/listen"}
READ = {"uri": "file:///secret"}


@pytest.fixture
def server() -> Iterator[Obliging]:
    with obliging_server.running() as found:
        yield found


@pytest.fixture
def box(served: Served, server: Obliging) -> Iterator[Served]:
    served.emptied(*TABLES, "events", "event_origins", "brakes", "asking_grants")
    furnish(served, server.url, server="obliging")
    rule(served, "mcp__obliging__*", "ask")
    yield served
    served.sql("DELETE FROM brakes")


def asked(wire: Wire, method: str = "resources/read", params: dict[str, Any] = READ) -> InBackground:
    return InBackground(lambda: wire.response(wire.send(method, params)))


def leave_before_the_verdict(wire: Wire) -> None:
    """Ask for a read, and go away once a person is asked."""
    message = wire.message("resources/read", READ)
    with wire.http.stream("POST", wire.path, json=message, headers=wire.headers_for(message)) as stream:
        next(stream.iter_raw())
        pending(wire.box)


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("method", ASKED)
def test_a_read_waits_for_a_person_and_is_sent_once_approved(
    box: Served, server: Obliging, method: str, stateless: bool
) -> None:
    if stateless and method in {"resources/subscribe", "resources/unsubscribe", "logging/setLevel"}:
        pytest.skip("not in 2026-07-28")
    waiting = asked(begun(box, stateless=stateless), method, ASKED[method])
    (request_id,) = pending(box)
    assert not server.heard(method)
    decide(box, request_id)
    assert "result" in waiting.result()
    assert len(server.heard(method)) == 1
    until(lambda: [kind for kind, _ in recorded(box, method)] == ["pre_tool", "post_tool"])


def test_the_card_says_the_act_and_shows_what_is_sent(box: Served) -> None:
    waiting = asked(begun(box))
    (request_id,) = pending(box)
    page = box.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
    assert "Read resource file:///secret of server obliging." in page
    assert "resources/read of obliging" in page
    ((shown,),) = box.sql("SELECT tool_input FROM permission_context")
    assert json.loads(shown) == READ
    decide(box, request_id, "denied")
    waiting.result()


def test_a_person_s_no_keeps_a_read_from_its_server(box: Served, server: Obliging) -> None:
    waiting = asked(begun(box))
    decide(box, pending(box)[0], "denied")
    error = waiting.result()["error"]
    assert error["code"] == DENIED
    assert "A person denied" in error["message"]
    assert not server.heard("resources/read")


def test_an_approval_is_for_one_read_of_the_very_same_bytes(box: Served, server: Obliging) -> None:
    wire = begun(box)
    waiting = asked(wire)
    decide(box, pending(box)[0])
    waiting.result()
    for params in (READ, {"uri": "file:///other"}):
        another = asked(wire, params=params)
        decide(box, pending(box)[0], "denied")
        assert "error" in another.result()
    assert len(server.heard("resources/read")) == 1


def test_an_approval_whose_client_has_left_is_for_the_same_read_made_again(
    box: Served, server: Obliging
) -> None:
    wire = begun(box)
    leave_before_the_verdict(wire)
    decide(box, pending(box)[0])
    assert not server.heard("resources/read"), "nobody is there to read it"
    assert "SECRET" in str(wire.ask("resources/read", READ))
    assert len(server.heard("resources/read")) == 1


def test_a_cancelled_read_closes_its_card(box: Served, server: Obliging) -> None:
    wire = begun(box)
    message = wire.message("resources/read", READ)
    waiting = InBackground(lambda: wire.post(message))
    pending(box)
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}}
    assert wire.post(note).status_code == 202
    waiting.result()
    until(lambda: box.sql("SELECT status FROM permission_requests") == [("withdrawn",)])
    assert not server.heard("resources/read")


def test_a_read_is_not_sent_once_policy_denies_it_though_it_was_approved(
    box: Served, server: Obliging
) -> None:
    waiting = asked(begun(box))
    (request_id,) = pending(box)
    box.sql("UPDATE tool_rules SET verdict = 'deny'")
    decide(box, request_id)
    assert waiting.result()["error"]["code"] == DENIED
    assert not server.heard("resources/read")


def test_a_read_is_not_sent_under_a_brake_though_it_was_approved(box: Served, server: Obliging) -> None:
    wire = begun(box)
    leave_before_the_verdict(wire)
    decide(box, pending(box)[0])
    put_on(box)
    assert wire.response(wire.send("resources/read", READ))["error"]["code"] == BRAKED
    assert not server.heard("resources/read")


def test_a_grant_that_asks_for_the_server_asks_about_its_reads(box: Served, server: Obliging) -> None:
    box.sql("DELETE FROM tool_rules")
    grant(box, AGENT, "run", "allow", server="obliging")
    box.sql(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, permission, granted_at)"
        " VALUES ('server_grant', ?, 'obliging', 'deny', ?)",
        (AGENT, LONG_AGO),
    )
    box.sql("INSERT INTO asking_grants (grant_id) SELECT max(id) FROM mcp_access_control")
    waiting = asked(begun(box))
    assert not server.heard("resources/read")
    decide(box, pending(box)[0])
    assert "SECRET" in str(waiting.result())


def test_nobody_is_asked_about_a_subscription_that_never_ends(box: Served, server: Obliging) -> None:
    wire = begun(box)
    method = "subscriptions/listen"
    assert wire.response(wire.send(method, READS[method]))["error"]["code"] == DENIED
    assert box.sql("SELECT count(*) FROM permission_requests") == [(0,)]


def test_the_approval_of_a_read_is_bound_to_its_bytes(box: Served) -> None:
    bound = set()
    for params in ({"uri": "a:b"}, {"uri": "a:\u0062c"}):
        waiting = asked(begun(box), params=params)
        decide(box, pending(box)[0], "denied")
        waiting.result()
        ((target,),) = box.sql("SELECT target_resource FROM permission_requests ORDER BY id DESC LIMIT 1")
        bound.add(target)
    assert len(bound) == 2


@pytest.mark.parametrize("accepts_events", [True, False])
def test_a_read_whose_client_waits_no_longer_is_for_the_same_read_made_again(
    box: Served, server: Obliging, accepts_events: bool
) -> None:
    """Codex gives up after a while, and so do clients that take no events: they are told so before."""
    wire = Wire(box, server="obliging", name="codex-mcp-client")
    wire.initialize()
    accept = "application/json, text/event-stream" if accepts_events else "application/json"
    answer = wire.post(wire.message("resources/read", READ), Accept=accept)
    error = wire.response(answer)["error"]
    (request_id,) = pending(box)
    assert error["code"] == DENIED
    assert (
        f"Waiting for approval: resources/read was not sent yet. A person decides at {box.url}"
        in error["message"]
    )
    assert request_id in error["message"]
    assert not server.heard("resources/read")
    decide(box, request_id)
    assert not server.heard("resources/read")
    assert "SECRET" in str(wire.ask("resources/read", READ))
    assert len(server.heard("resources/read")) == 1


def test_a_read_with_the_id_of_one_that_waits_waits_for_its_own_approval(
    box: Served, server: Obliging
) -> None:
    wire = begun(box)
    first = wire.message("resources/read", READ)
    other = first | {"params": {"uri": "file:///other"}}
    waiting = InBackground(lambda: wire.response(wire.post(first)))
    (request_id,) = pending(box)
    second = InBackground(lambda: wire.response(wire.post(other)))
    pending(box, 2)
    decide(box, request_id)
    assert "result" in waiting.result()
    assert [message["params"] for message, _, _ in server.heard("resources/read")] == [READ]
    decide(box, pending(box)[0], "denied")
    assert "error" in second.result()
    assert len(server.heard("resources/read")) == 1


@pytest.mark.parametrize("method", ASKED)
def test_nothing_is_read_by_a_grant_that_has_expired(box: Served, server: Obliging, method: str) -> None:
    box.sql("DELETE FROM tool_rules")
    box.sql("UPDATE mcp_servers SET default_policy = 'opt-in' WHERE name = 'obliging'")
    grant(box, AGENT, "run", "allow", server="obliging")
    box.sql(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, permission, granted_at, expires_at)"
        " VALUES ('server_grant', ?, 'obliging', 'allow', ?, ?)",
        (AGENT, LONG_AGO, LONG_AGO),
    )
    assert wire_error(begun(box), method)["code"] == DENIED
    assert not server.heard(method)
    box.sql("UPDATE mcp_access_control SET expires_at = NULL WHERE entry_type = 'server_grant'")
    assert "result" in begun(box).response(begun(box).send(method, ASKED[method]))


def wire_error(wire: Wire, method: str) -> dict[str, Any]:
    error: dict[str, Any] = wire.response(wire.send(method, ASKED[method]))["error"]
    return error
