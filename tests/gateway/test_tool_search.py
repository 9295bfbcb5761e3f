"""An agent that is to search is shown two tools, and what it calls by them is judged and recorded as a direct call."""

from __future__ import annotations

import json
import time

import pytest

from tests.gateway.agents import AGENT, LONG_AGO, OTHER_KEY, Wire, grant, rule, text_of
from tests.gateway.example_server import Example
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.patience import PATIENCE, until
from tests.served import Served

pytestmark = pytest.mark.served


@pytest.fixture
def searching(box: Served):
    show(box, "search")
    yield box
    box.sql("DELETE FROM agent_tool_listings")


def show(box: Served, listed: str, tools: tuple[tuple[str, str], ...] = ()) -> None:
    box.sql("DELETE FROM agent_tool_listings")
    box.sql(
        "INSERT INTO agent_tool_listings (agent_id, listed, tools, changed_by, changed_at) VALUES (?, ?, ?, ?, ?)",
        (AGENT, listed, json.dumps(tools), "test", LONG_AGO),
    )


def begun(box: Served, **options: str) -> Wire:
    wire = Wire(box, server="", **options)
    wire.initialize()
    return wire


def names(wire: Wire) -> list[str]:
    return [tool["name"] for tool in wire.ask("tools/list")["tools"]]


def call(wire: Wire, tool: str, **arguments: str) -> dict:
    return wire.ask("tools/call", {"name": "call_tool", "arguments": {"name": tool, "arguments": arguments}})


def test_two_tools_stand_for_all_of_them(searching: Served) -> None:
    wire = begun(searching)
    assert names(wire) == ["find_tools", "call_tool"]
    found = text_of(wire.call("find_tools", query="destroy something"))
    about, _, definitions = found.partition("\n")
    assert about.startswith("1 of 1 tools that fit")
    assert [tool["name"] for tool in json.loads(definitions)] == ["example__zap"]
    assert "example__echo" in text_of(wire.call("find_tools", query=""))


def test_another_agent_is_shown_all_tools(searching: Served) -> None:
    assert "example__echo" in names(begun(searching, key=OTHER_KEY))


def test_what_is_found_is_called_with_its_arguments_as_they_came(searching: Served, example: Example) -> None:
    wire = begun(searching)
    assert text_of(call(wire, "example__echo", text="hi")) == "echo: hi"
    assert example.calls == {"echo hi": 1}
    rows = until(
        lambda: searching.sql("SELECT tool_name, tool_input FROM events WHERE tool_input LIKE '%hi%'")
    )
    assert {(name, json.loads(given)["text"]) for name, given in rows} == {("mcp__example__echo", "hi")}


def test_a_stateless_call_is_passed_on_under_the_tools_own_name(searching: Served, example: Example) -> None:
    wire = Wire(searching, server="", stateless=True)
    assert text_of(call(wire, "example__echo", text="hi")) == "echo: hi"


def test_a_tool_that_is_denied_is_neither_found_nor_called(searching: Served, example: Example) -> None:
    rule(searching, "mcp__example__zap", "deny")
    grant(searching, AGENT, "write", "deny")
    wire = begun(searching)
    listed = text_of(wire.call("find_tools", query=""))
    assert "example__echo" in listed
    assert "zap" not in listed
    assert "example__write" not in listed
    assert "Denied" in text_of(call(wire, "example__zap"))
    assert "Denied" in text_of(call(wire, "example__write", path="/t"))
    assert example.calls == {}


def test_a_card_shows_the_tool_and_its_arguments_and_one_approval_runs_the_call_once(
    searching: Served, example: Example
) -> None:
    rule(searching, "mcp__example__write", "ask")
    wire = begun(searching)
    waiting = InBackground(lambda: call(wire, "example__write", path="/t"))
    (request_id,) = pending(searching)
    assert not example.calls
    card = searching.sign_in("admin").get(f"/ui/approvals/{request_id}/").text
    assert "mcp__example__write" in card
    assert "/t" in card
    assert "call_tool" not in card
    decide(searching, request_id)
    assert text_of(waiting.result()) == "wrote /t"
    assert example.calls == {"write /t": 1}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"name": 1},
        {"name": "example__echo", "arguments": []},
        {"name": "example__echo", "arguments": {"text": "x"}, "extra": 1},
        {"name": "call_tool", "arguments": {"name": "example__zap"}},
        {"name": "find_tools"},
        {"name": "zap"},
    ],
)
def test_what_names_no_tool_is_refused(searching: Served, example: Example, arguments: dict) -> None:
    wire = begun(searching)
    answer = wire.response(wire.send("tools/call", {"name": "call_tool", "arguments": arguments}))
    assert answer["error"]["code"] == -32602
    assert example.calls == {}


def test_an_agent_is_shown_the_chosen_tools_that_it_may_call(box: Served, example: Example) -> None:
    rule(box, "mcp__example__zap", "deny")
    show(box, "chosen", (("example", "echo"), ("example", "zap"), ("other", "write")))
    try:
        wire = begun(box)
        assert names(wire) == ["example__echo"]
        own = Wire(box)
        own.initialize()
        assert names(own) == ["echo"]
        # What is shown decides nothing about what may be called.
        assert text_of(wire.call("example__write", path="/t")) == "wrote /t"
    finally:
        box.sql("DELETE FROM agent_tool_listings")


def test_a_short_description_is_shown_until_the_definition_changes(box: Served) -> None:
    wire = begun(box)
    wire.ask("tools/list")

    def becomes_described(text: str) -> bool:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            tools = {tool["name"]: tool for tool in wire.ask("tools/list")["tools"]}
            if tools["example__echo"]["description"] == text:
                return True
        return False

    try:
        box.sql(
            "UPDATE mcp_tools SET short_description = 'Short.', short_for = definition_hash WHERE name = 'echo'"
        )
        assert becomes_described("Short.")
        box.sql("UPDATE mcp_tools SET short_for = 'another' WHERE name = 'echo'")
        assert becomes_described("Return the text.")
    finally:
        box.sql("UPDATE mcp_tools SET short_description = NULL, short_for = NULL")
