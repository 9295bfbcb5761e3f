"""`/mcp/collections/NAME`: chosen tools of several servers, and nothing beyond what `/mcp` would let the agent do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway import example_server
from tests.gateway.agents import (
    AGENT,
    LONG_AGO,
    OTHER_KEY,
    GatewayRefused,
    Wire,
    furnish,
    grant,
    rule,
    text_of,
)
from tests.gateway.example_server import Example
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.patience import PATIENCE, until
from tests.served import Served

pytestmark = pytest.mark.served
TEAM = "collections/team"
ECHO, WRITE = ("example", "echo"), ("example", "write")


@pytest.fixture
def box(box: Served) -> Any:
    collect(box, ECHO, WRITE)
    yield box
    box.sql("DELETE FROM tool_collections")
    box.sql("DELETE FROM agent_tool_listings")
    box.sql("DELETE FROM mcp_servers WHERE name <> 'example'")


def collect(box: Served, *tools: tuple[str, str], name: str = "team") -> None:
    box.sql("DELETE FROM tool_collections WHERE name = ?", (name,))
    box.sql(
        "INSERT INTO tool_collections (name, description, tools, changed_by, changed_at) VALUES (?, '', ?, 'test', ?)",
        (name, json.dumps(tools), LONG_AGO),
    )


def begin_session(box: Served, server: str = TEAM, **options: Any) -> Wire:
    wire = Wire(box, server=server, **options)
    if not wire.stateless:
        wire.initialize()
    return wire


def list_names(wire: Wire) -> list[str]:
    return [tool["name"] for tool in wire.ask("tools/list")["tools"]]


def call_refused(wire: Wire, tool: str) -> str:
    """Call a tool; return the message of the error that answers it."""
    answer = wire.response(wire.send("tools/call", {"name": tool, "arguments": {}}))
    assert answer["error"]["code"] == -32602
    message: str = answer["error"]["message"]
    return message


@pytest.mark.parametrize("stateless", [False, True])
def test_its_tools_are_listed_and_called_and_no_other(box: Served, example: Example, stateless: bool) -> None:
    with example_server.running() as second, example_server.running() as third:
        furnish(box, second.url, server="other place")
        furnish(box, third.url, server="third")
        collect(box, ECHO, ("other place", ""), ("third", "not there"), ("gone", "tool"))
        wire = begin_session(box, stateless=stateless)
        if stateless:
            assert "2026-07-28" in wire.ask("server/discover")["supportedVersions"]
        names = list_names(wire)
        assert [name for name in names if not name.startswith("other_place__")] == ["example__echo"]
        assert {"other_place__echo", "other_place__zap"} <= set(names)
        assert text_of(wire.call("example__echo", text="hi")) == "echo: hi"
        assert text_of(wire.call("other_place__echo", text="ho")) == "echo: ho"
        for name in ("example__zap", "third__echo", "gone__tool", "nothing"):
            assert "There is no such tool here" in call_refused(wire, name)
        assert wire.call("third__not there")["isError"]
        assert (dict(example.calls), dict(second.calls), dict(third.calls)) == (
            {"echo hi": 1},
            {"echo ho": 1},
            {},
        )


def test_a_call_outside_the_collection_is_audited(box: Served, example: Example) -> None:
    collect(box, ECHO, name="audited")
    assert "no such tool" in call_refused(begin_session(box, "collections/audited"), "example__zap")
    row = until(
        lambda: box.sql(
            "SELECT result, reason FROM audit_logs WHERE target_id = 'agent.one collections/audited'"
        )
    )
    assert "'example__zap' is called, which the collection audited does not serve." in str(row)
    assert not example.calls


def test_call_tool_reaches_nothing_outside_the_collection(box: Served, example: Example) -> None:
    box.sql("INSERT INTO agent_tool_listings VALUES (?, 'search', '[]', 'test', ?)", (AGENT, LONG_AGO))
    wire = begin_session(box)
    assert list_names(wire) == ["find_tools", "call_tool"]
    found = text_of(wire.call("find_tools", query=""))
    assert "example__echo" in found
    assert "example__zap" not in found
    inner = {"name": "example__zap", "arguments": {}}
    answer = wire.response(wire.send("tools/call", {"name": "call_tool", "arguments": inner}))
    assert "no such tool" in answer["error"]["message"]
    inner = {"name": "example__echo", "arguments": {"text": "hi"}}
    assert text_of(wire.ask("tools/call", {"name": "call_tool", "arguments": inner})) == "echo: hi"
    collect(box)
    assert list_names(wire) == []
    assert dict(example.calls) == {"echo hi": 1}


def test_the_tools_that_the_agent_is_shown_are_a_choice_within_the_collection(box: Served) -> None:
    chosen = json.dumps([ECHO, ("example", "zap")])
    box.sql("INSERT INTO agent_tool_listings VALUES (?, 'chosen', ?, 'test', ?)", (AGENT, chosen, LONG_AGO))
    assert list_names(begin_session(box)) == ["example__echo"]
    assert list_names(begin_session(box, key=OTHER_KEY)) == ["example__echo", "example__write"]


@pytest.mark.parametrize("stateless", [False, True])
def test_what_is_denied_stays_denied(box: Served, example: Example, stateless: bool) -> None:
    rule(box, "mcp__example__echo", "deny")
    grant(box, AGENT, "write", "deny")
    wire = begin_session(box, stateless=stateless)
    assert list_names(wire) == []
    assert "Denied" in text_of(wire.call("example__echo", text="hi"))
    assert "Denied" in text_of(wire.call("example__write", path="/t"))
    furnish(box, example.url, policy="opt-in")
    box.sql("DELETE FROM tool_rules")
    box.sql("DELETE FROM mcp_access_control")
    assert list_names(begin_session(box, stateless=stateless)) == []
    assert not example.calls


def test_a_call_that_asks_waits_for_a_person(box: Served, example: Example) -> None:
    rule(box, "mcp__example__write", "ask")
    wire = begin_session(box)
    waiting = InBackground(lambda: wire.call("example__write", path="/t"))
    (request_id,) = pending(box)
    assert not example.calls
    decide(box, request_id)
    assert text_of(waiting.result()) == "wrote /t"
    names = until(lambda: box.sql("SELECT DISTINCT tool_name FROM events WHERE tool_input LIKE '%/t%'"))
    assert names == [("mcp__example__write",)]


@pytest.mark.parametrize(
    ("begun_at", "used_at"), [("", TEAM), (TEAM, ""), (TEAM, "collections/rest"), ("example", TEAM)]
)
def test_a_session_is_one_of_the_address_where_it_was_begun(box: Served, begun_at: str, used_at: str) -> None:
    collect(box, ("example", "zap"), name="rest")
    wire = begin_session(box, begun_at)
    assert list_names(wire)
    wire.path = f"/mcp/{used_at}" if used_at else "/mcp"
    for method in ("tools/list", "tools/call"):
        with pytest.raises(GatewayRefused, match=r"404 .*Begin a new one"):
            wire.ask(method, {"name": "example__echo", "arguments": {}})
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": str(wire.session)}
    assert wire.http.get(wire.path, headers=headers).status_code == 404
    assert wire.http.delete(wire.path, headers=headers).status_code == 404


def test_a_session_ends_at_its_address(box: Served) -> None:
    wire = begin_session(box)
    headers = {"Mcp-Session-Id": str(wire.session)}
    assert wire.http.delete(wire.path, headers=headers).status_code == 200
    with pytest.raises(GatewayRefused, match="404"):
        wire.ask("tools/list")


@pytest.mark.parametrize("stateless", [False, True])
def test_an_unknown_or_deleted_collection_serves_nothing(
    box: Served, example: Example, stateless: bool
) -> None:
    for name in ("collections/none", "collections/team/more", "collections/"):
        wire = Wire(box, server=name, stateless=stateless)
        with pytest.raises(GatewayRefused, match="404"):
            wire.ask("tools/list") if stateless else wire.initialize()
    wire = begin_session(box, stateless=stateless)
    assert list_names(wire)
    box.sql("DELETE FROM tool_collections")
    with pytest.raises(GatewayRefused, match=r"404 .*There is no collection 'team' here"):
        wire.call("example__echo", text="hi")
    assert not example.calls


def test_an_empty_one_and_one_that_cannot_be_read_have_no_tools(box: Served, example: Example) -> None:
    wire = begin_session(box)
    for tools in ("[]", "{}", "7", json.dumps([["example"], 7, [1, 2], "example"])):
        box.sql("UPDATE tool_collections SET tools = ?", (tools,))
        assert list_names(wire) == []
        assert "no such tool" in call_refused(wire, "example__echo")
    assert not example.calls


def test_a_server_that_is_deleted_or_closed_has_no_tools_there(box: Served) -> None:
    with example_server.running() as second:
        furnish(box, second.url, server="other")
        collect(box, ECHO, ("other", ""), ("away", "echo"))
        furnish(box, "http://127.0.0.1:9/mcp", server="away")
        furnish(box, "http://127.0.0.1:9/mcp", server="elsewhere")
        listing = begin_session(box).ask("tools/list")
        assert listing["_meta"] == {"signalbox/unreachable": ["away"]}
        assert "other__echo" in [tool["name"] for tool in listing["tools"]]
        box.sql("DELETE FROM mcp_servers WHERE name IN ('other', 'away')")
        until(lambda: list_names(begin_session(box)) == ["example__echo"])


def test_a_client_learns_that_the_collection_was_edited(box: Served) -> None:
    wire = begin_session(box)
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": str(wire.session)}
    assert list_names(wire) == ["example__echo", "example__write"]
    with wire.http.stream("GET", wire.path, headers=headers, timeout=PATIENCE) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": here"
        box.sql("UPDATE tool_collections SET tools = ?", (json.dumps([ECHO]),))
        event = next(line for line in lines if line.startswith("data:"))
    assert "notifications/tools/list_changed" in event
    assert list_names(wire) == ["example__echo"]
