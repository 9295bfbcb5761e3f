"""A call whose agent's program says in `_meta` which it is stands in its session's timeline as one row.

The members are those of Claude Code 2.1.332 and Codex 0.171.0, as recorded.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from coordinator.models import PermissionRequest
from coordinator.policy.requests.gateway_requests import parse_gateway_request_or_none
from tests.gateway.agents import AGENT, KEY, OTHER_KEY, Wire, rule, text_of
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.gateway.test_told_twice import TOOL, told
from tests.patience import until
from tests.served import Served

pytestmark = pytest.mark.served

FIRST, SECOND = "01a217ee-ab1a-7843-967e-b84d1d372494", "01a217ee-ab1a-7843-967e-b84d1d372495"
AGENTS_OWN = "SELECT session_id FROM sessions WHERE executor_session_id = ?"
OF_GATEWAY = "SELECT session_id, status FROM sessions WHERE executor_profile = 'mcp-gateway'"


class Hooks:
    """One session of an agent, as its hooks report it."""

    def __init__(self, box: Served, session: str, key: str = KEY) -> None:
        self.box, self.session = box, session
        self.http = box.client(key=None)
        self.http.headers["Authorization"] = f"Bearer {key}"
        self.report("SessionStart", source="startup")

    def report(self, event: str, **fields: Any) -> None:
        body = {"session_id": self.session, "cwd": "/srv/shop", "hook_event_name": event} | fields
        assert self.http.post("/hooks/claude-code?wait=60", json=body).status_code == 200

    def begins(self, call_id: str, tool: str = TOOL, **given: Any) -> None:
        self.report("PreToolUse", tool_name=tool, tool_input=given, tool_use_id=call_id)

    def ends(self, call_id: str, **given: Any) -> None:
        fields = {"tool_response": "wrote it", "tool_use_id": call_id}
        self.report("PostToolUse", tool_name=TOOL, tool_input=given, **fields)

    @property
    def row(self) -> str:
        ((found,),) = self.box.sql(AGENTS_OWN, (self.session,))
        return str(found)


class Client(Wire):
    """An agent's MCP client, which says of each call which it is."""

    def call_as(self, claim: dict[str, Any], **given: Any) -> dict[str, Any]:
        params = {"name": "write", "arguments": given, "_meta": claim | {"progressToken": 4}}
        return self.ask("tools/call", params)


def claude(call_id: str) -> dict[str, Any]:
    return {"claudecode/toolUseId": call_id}


def codex(session: str, call_id: str) -> dict[str, Any]:
    turn = {"session_id": session, "thread_id": session, "codex_version": "0.171.0"}
    named = {"sessionId": session, "threadId": session, "callId": call_id}
    return named | {"x-codex-turn-metadata": turn, "windowId": f"{session}:0", "itemId": "fc_1"}


@pytest.fixture
def sessions(box: Served) -> tuple[Hooks, Hooks]:
    """Two sessions of one agent that run: nothing but the claim tells them apart."""
    box.emptied("sessions", "events", "event_context", "event_origins")
    return Hooks(box, FIRST), Hooks(box, SECOND)


@pytest.fixture
def client(box: Served, sessions: tuple[Hooks, Hooks]) -> Client:
    found = Client(box)
    found.initialize()
    return found


def places(box: Served, count: int) -> list[tuple[Any, ...]]:
    """Return the events of calls, once there are so many: kind, session, the call's id, who reported it."""
    told(box, count)
    asked = (
        "SELECT e.event_type, e.session_id, c.tool_use_id, c.source FROM events e"
        " JOIN event_context c ON c.event_id = e.id WHERE e.tool_name IS NOT NULL ORDER BY e.id"
    )
    return box.sql(asked)


def calls_shown(box: Served, session_id: str) -> int:
    page = box.sign_in("viewer").get(f"/ui/sessions/{session_id}/").text
    return page.count('class="entry-body call-body"')


@pytest.mark.parametrize("claim", [claude("toolu_1"), codex(SECOND, "toolu_1")], ids=["claude", "codex"])
def test_a_claimed_call_joins_what_its_hook_reported_before(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client, claim: dict[str, Any]
) -> None:
    _, second = sessions
    second.begins("toolu_1", path="/a")
    client.call_as(claim, path="/a")
    places(box, 2)
    second.ends("toolu_1", path="/a")
    assert places(box, 3) == [
        ("pre_tool", second.row, "toolu_1", "claude-code"),
        ("post_tool", second.row, "toolu_1", "gateway"),
        ("post_tool", second.row, "toolu_1", "claude-code"),
    ]
    assert box.sql(OF_GATEWAY) == []
    assert calls_shown(box, second.row) == 1


def test_a_claimed_call_whose_hook_comes_later_is_one_row(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    _, second = sessions
    client.call_as(codex(SECOND, "call_1"), path="/a")
    places(box, 2)
    second.begins("call_1", path="/a")
    second.ends("call_1", path="/a")
    assert places(box, 3) == [
        ("pre_tool", second.row, "call_1", "gateway"),
        ("post_tool", second.row, "call_1", "gateway"),
        ("post_tool", second.row, "call_1", "claude-code"),
    ]
    assert calls_shown(box, second.row) == 1


def test_a_claimed_call_of_which_no_hook_reports_is_one_row(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    _, second = sessions
    rule(box, "mcp__example__write", "ask")
    waiting = InBackground(lambda: client.call_as(codex(SECOND, "call_1"), path="/a"))
    (request_id,) = pending(box)
    decide(box, request_id)
    assert text_of(waiting.result()) == "wrote /a"
    rows = places(box, 2)
    assert [row[1:] for row in rows] == [(second.row, "call_1", "gateway")] * 2
    assert calls_shown(box, second.row) == 1


def test_a_hook_that_reports_other_arguments_under_the_same_id_is_shown_beside_it(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    _, second = sessions
    client.call_as(codex(SECOND, "call_1"), path="/etc/passwd")
    places(box, 2)
    second.begins("call_1", path="/harmless")
    given = [
        json.loads(row[0]) for row in box.sql("SELECT tool_input FROM events WHERE event_type='pre_tool'")
    ]
    assert given == [{"path": "/etc/passwd"}, {"path": "/harmless"}]


def test_a_claim_of_another_call_joins_nothing(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    first, _ = sessions
    first.begins("toolu_1", path="/harmless")
    client.call_as(claude("toolu_1"), path="/a")
    client.call_as(claude("toolu_1"), path="/harmless")
    client.call_as(claude("toolu_1"), path="/harmless")  # the second under this id is no more it
    rows = places(box, 6)
    joined = (
        "SELECT e.event_type, e.tool_input FROM events e JOIN event_context c ON c.event_id = e.id"
        " WHERE c.source = 'gateway' AND c.tool_use_id = 'toolu_1'"
    )
    assert [(kind, json.loads(given)) for kind, given in box.sql(joined)] == [
        ("post_tool", {"path": "/harmless"})
    ]
    assert [row[0] for row in rows if row[3] == "gateway" and row[2] != "toolu_1"].count("pre_tool") == 2


def test_a_server_that_its_agent_calls_otherwise_is_named_in_the_row(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    first, _ = sessions
    first.begins("toolu_1", "mcp__direct__write", path="/a")
    first.begins("toolu_2", "mcp__direct__read", path="/a")
    client.call_as(claude("toolu_1"), path="/a")
    client.call_as(claude("toolu_2"), path="/a")
    rows = places(box, 5)
    assert next((row[0], row[2]) for row in rows if row[3] == "gateway") == ("post_tool", "toolu_1")
    assert "toolu_2" not in [row[2] for row in rows if row[3] == "gateway"]
    page = " ".join(box.sign_in("viewer").get(f"/ui/sessions/{first.row}/").text.split())
    assert "Through the gateway as mcp__example__write" in page


def test_of_equal_calls_the_claimed_one_is_joined(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    first, _ = sessions
    first.begins("toolu_1", path="/a")
    first.begins("toolu_2", path="/a")
    client.call_as(claude("toolu_1"), path="/a")
    assert places(box, 3)[2] == ("post_tool", first.row, "toolu_1", "gateway")


def test_a_claim_joins_no_session_of_another_agent(box: Served, sessions: tuple[Hooks, Hooks]) -> None:
    first, second = sessions
    first.begins("toolu_1", path="/a")
    other = Client(box, key=OTHER_KEY)
    other.initialize()
    for claim in (claude("toolu_1"), codex(SECOND, "toolu_1")):
        other.call_as(claim, path="/a")
    rows = [row for row in places(box, 5) if row[3] == "gateway"]
    assert len(rows) == 4
    assert {row[1] for row in rows}.isdisjoint({first.row, second.row})


def test_a_claim_joins_no_session_that_is_over(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    _, second = sessions
    over = second.row
    second.report("SessionEnd", reason="exit")
    client.call_as(codex(SECOND, "call_1"), path="/a")
    assert {row[1] for row in places(box, 2)} == {sessions[0].row}
    assert box.sql("SELECT status FROM sessions WHERE session_id = ?", (over,)) == [("finished",)]


def test_a_claim_changes_nothing_of_what_is_judged(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    """An approval of the call by its hook, under the very id, lets nothing through at the gateway."""
    first, _ = sessions
    rule(box, "mcp__example__write", "deny", "/denied")
    rule(box, "mcp__example__write", "ask")
    first.begins("toolu_1", path="/denied")
    assert "Denied" in text_of(client.call_as(claude("toolu_1"), path="/denied"))
    first.begins("toolu_2", path="/a")
    waiting = InBackground(lambda: client.call_as(claude("toolu_2"), path="/a"))
    (request_id,) = pending(box)
    decide(box, request_id)
    assert text_of(waiting.result()) == "wrote /a"
    waiting = InBackground(lambda: client.call_as(claude("toolu_2"), path="/a"))
    (again,) = pending(box)  # the same id and bytes are another call once the approval was used
    assert again != request_id
    decide(box, again, "denied")
    assert "denied" in text_of(waiting.result())


@pytest.mark.parametrize(
    "claim", [claude("x" * 201), claude("a\x00"), {"claudecode/toolUseId": 7}, claude("")]
)
def test_an_odd_claim_is_none(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client, claim: dict[str, Any]
) -> None:
    client.call_as(claim, path="/a")
    assert all(re.fullmatch("sbx-[0-9a-f]{32}", row[2]) for row in places(box, 2))


def test_a_session_for_calls_of_an_unknown_one_ends_with_its_mcp_session(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    client.call_as(claude("toolu_1"), path="/a")
    places(box, 2)
    ((session_id, status),) = box.sql(OF_GATEWAY)
    assert status == "running"
    assert (
        client.http.delete("/mcp/example", headers={"Mcp-Session-Id": client.session or ""}).status_code
        == 200
    )
    assert box.sql(OF_GATEWAY) == [(session_id, "finished")]
    assert "MCP session closed" in box.sign_in("viewer").get(f"/ui/sessions/{session_id}/").text
    assert box.sql("SELECT count(*) FROM sessions WHERE agent_name = ?", (AGENT,)) == [(3,)]


def test_the_card_says_in_words_who_asks_and_folds_the_digests_away(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    rule(box, "mcp__example__write", "ask")
    waiting = InBackground(lambda: client.call_as(codex(SECOND, "call_1"), path="/a"))
    (request_id,) = pending(box)
    page = box.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
    heading = re.search(r'<h2 id="ask-.*?</h2>', page, re.DOTALL)
    assert heading is not None
    words = " ".join(re.sub(r"<[^>]+>", "", heading[0]).split())
    assert words == "Call write of example"
    before, folded, _ = page.partition("What an approval is bound to")
    assert folded
    for who in (AGENT, "test-client", "shop"):
        assert who in before
    assert "sha256:" not in before
    decide(box, request_id)
    assert text_of(waiting.result()) == "wrote /a"


def test_whoever_calls_itself_the_gateway_has_its_target_shown() -> None:
    row = PermissionRequest(plugin_id="mcp-gateway", target_resource="rm -rf / of example")
    assert parse_gateway_request_or_none(row) is None
    row.target_resource += f" · arguments sha256:{'a' * 64} · definition sha256: · policy {'b' * 16}"
    assert parse_gateway_request_or_none(row) is not None
    row.target_resource += " and more"
    assert parse_gateway_request_or_none(row) is None


def test_what_a_client_did_before_its_session_was_reported_leaves_no_session_that_runs(box: Served) -> None:
    """Gemini CLI and Claude Code list prompts and resources while they start."""
    box.emptied("sessions", "events", "event_context", "event_origins")
    client = Client(box)
    client.initialize()
    client.ask("prompts/list")
    until(lambda: len(box.sql(OF_GATEWAY)) == 1)
    agent = Hooks(box, SECOND)
    client.call_as(codex(SECOND, "call_1"), path="/a")
    until(lambda: [row[1] for row in box.sql(OF_GATEWAY)] == ["finished"])
    assert {row[1] for row in places(box, 4) if row[2] == "call_1"} == {agent.row}


def test_a_call_that_its_hook_and_the_gateway_ask_about_is_one_row(
    box: Served, sessions: tuple[Hooks, Hooks], client: Client
) -> None:
    """The agent asks its own person first, whatever policy says, and knows the server by its own name."""
    first, _ = sessions
    direct = "mcp__example__write"
    first.begins("toolu_1", direct, path="/a")
    asks = {"tool_name": direct, "tool_input": {"path": "/a"}}
    hook = InBackground(lambda: first.report("PermissionRequest", **asks))
    (of_hook,) = pending(box)
    decide(box, of_hook)
    hook.result()
    rule(box, direct, "ask")
    call = InBackground(lambda: client.call_as(claude("toolu_1"), path="/a"))
    (of_gateway,) = pending(box)
    assert of_gateway != of_hook, "what its hook asked about is bound to neither the bytes nor the definition"
    decide(box, of_gateway)
    assert text_of(call.result()) == "wrote /a"
    places(box, 2)
    first.report("PostToolUse", tool_name=direct, tool_input={"path": "/a"}, tool_use_id="toolu_1")
    assert (
        len(places(box, 4)) == 4
    )  # the call, the question, and its end as its hook and as the gateway tell it
    assert calls_shown(box, first.row) == 1
    events = box.sql("SELECT DISTINCT event_id FROM permission_context WHERE event_id IS NOT NULL")
    assert len(events) == 1
