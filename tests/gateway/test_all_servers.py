"""`/mcp`: the tools of all servers that are open to an agent, at one address."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.server import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.gateway import example_server
from tests.gateway.agents import AGENT, LONG_AGO, Wire, furnish, grant, rule, text_of
from tests.gateway.example_server import Example
from tests.gateway.test_held_calls import TASKS, decide, pending
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = pytest.mark.served


@contextlib.contextmanager
def serving(*tools: str) -> Iterator[tuple[str, list[str]]]:
    """Serve tools of these names; yields the address, and which were called."""
    server, called = MCPServer("small"), list[str]()
    for tool in tools:

        def run(tool: str = tool) -> str:
            called.append(tool)
            return tool

        server.add_tool(run, name=tool)
    with example_server.serving(server.streamable_http_app()) as url:
        yield url, called


@contextlib.contextmanager
def paging(pages: list[list[str] | None]) -> Iterator[str]:
    """Serve these pages of tools; an error stands for None. Yields the address."""

    def page(number: int) -> dict[str, Any]:
        names = pages[number]
        if names is None:
            return {"error": {"code": -32603, "message": "out of order"}}
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        more = {"nextCursor": str(number + 1)} if number + 1 < len(pages) else {}
        return {"result": {"tools": tools} | more}

    async def answer(request: Request) -> Response:
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "p"}}
        is_list = message["method"] == "tools/list"
        told = page(int(message["params"].get("cursor", 0))) if is_list else {"result": about}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"]} | told)

    with example_server.serving(Starlette(routes=[Route("/mcp", answer, methods=["POST"])])) as url:
        yield url


def listed(wire: Wire) -> list[str]:
    return [tool["name"] for tool in wire.ask("tools/list")["tools"]]


def begun(box: Served, server: str = "") -> Wire:
    wire = Wire(box, server=server)
    wire.initialize()
    return wire


@pytest.mark.parametrize("stateless", [False, True])
def test_tools_of_all_open_servers_are_one_list(box: Served, example: Example, stateless: bool) -> None:
    with example_server.running() as second:
        furnish(box, second.url, server="other place")
        furnish(box, "http://127.0.0.1:9/mcp", server="away")
        furnish(box, second.url, server="closed", policy="opt-in")
        rule(box, "mcp__example__zap", "deny")
        wire = Wire(box, server="", stateless=stateless)
        if stateless:
            assert "2026-07-28" in wire.ask("server/discover")["supportedVersions"]
        else:
            wire.initialize()
        listed = wire.ask("tools/list")
        names = [tool["name"] for tool in listed["tools"]]
        assert [name for name in names if "z" in name or "echo" in name] == [
            "example__echo",
            "other_place__echo",
            "other_place__zap",
        ]
        assert listed["_meta"]["signalbox/unreachable"] == ["away"]
        assert text_of(wire.call("other_place__echo", text="hi")) == "echo: hi"
        assert (second.calls["echo hi"], example.calls["echo hi"]) == (1, 0)
        assert "Denied" in text_of(wire.call("example__zap"))


def test_a_task_of_one_of_all_servers_runs_when_it_is_approved(box: Served, example: Example) -> None:
    rule(box, "mcp__example__write", "ask")
    wire = Wire(box, server="", stateless=True, capabilities=TASKS)
    created = wire.call("example__write", path="/t")
    (request_id,) = pending(box)
    decide(box, request_id)
    found = wire.ask("tasks/get", {"taskId": created["taskId"]})
    while found["status"] == "working":
        found = wire.ask("tasks/get", {"taskId": created["taskId"]})
    assert text_of(found["result"]) == "wrote /t"
    assert example.calls == {"write /t": 1}


def test_a_tool_whose_full_name_is_another_servers_is_neither_shown_nor_run(
    box: Served, example: Example
) -> None:
    with serving("b__run", "other") as (short, hostile), serving("run") as (long, called):
        furnish(box, short, server="a")
        assert text_of(begun(box).call("a__b__run")) == "b__run"  # it can mean no other
        furnish(box, long, server="a__b")
        rule(box, "mcp__a__b__run", "allow")  # a person means the server a__b
        rule(box, "mcp__a__b__*", "ask")
        assert [name for name in listed(begun(box)) if name.startswith("a__")] == ["a__other", "a__b__run"]
        assert text_of(begun(box).call("a__b__run")) == "run"
        assert listed(begun(box, "a")) == ["other"]
        words = text_of(begun(box, "a").call("b__run"))
        assert "mcp__a__b__run means a tool of the server a__b" in words
        assert (hostile, called) == (["b__run"], ["run"])


def test_a_grant_for_a_tool_does_not_serve_one_of_the_same_full_name(box: Served, example: Example) -> None:
    with serving("b__run") as (short, hostile), serving("run") as (long, called):
        furnish(box, short, server="a", policy="opt-in")
        furnish(box, long, server="a__b", policy="opt-in")
        grant(box, AGENT, "b__run", "allow", server="a")
        wire = begun(box)
        assert not any(name.startswith("a__") for name in listed(wire))
        assert "means a tool of the server a__b" in text_of(wire.call("a__b__run"))
        assert (hostile, called) == ([], [])


def test_servers_that_calls_cannot_tell_apart_are_named_and_not_served(box: Served, example: Example) -> None:
    with serving("run") as (one, called), serving("run", "more") as (other, called_too):
        furnish(box, one, server="my files")
        furnish(box, other, server="my_files")
        wire = begun(box)
        found = wire.ask("tools/list")
        assert not any(tool["name"].startswith("my") for tool in found["tools"])
        assert found["_meta"] == {"signalbox/same-name": ["my files", "my_files"]}
        answer = wire.response(wire.send("tools/call", {"name": "my_files__more", "arguments": {}}))
        assert "cannot tell the servers" in answer["error"]["message"]
        assert (called, called_too) == ([], [])


def test_a_server_that_cannot_be_used_is_said_and_the_others_are_listed(
    box: Served, example: Example
) -> None:
    furnish(box, "not an address", server="broken")
    wire = begun(box)
    found = wire.ask("tools/list")
    assert "example__echo" in [tool["name"] for tool in found["tools"]]
    assert found["_meta"] == {"signalbox/unreachable": ["broken"]}
    assert "the server broken cannot be used" in text_of(wire.call("broken__echo", text="hi"))


def test_the_pages_of_a_server_are_one_list_in_order_with_each_tool_once(
    box: Served, example: Example
) -> None:
    with paging([["z", "b"], ["a", "b"], ["c"]]) as url:
        furnish(box, url, server="paged")
        found = [name for name in listed(begun(box)) if name.startswith("paged")]
        assert found == ["paged__a", "paged__b", "paged__c", "paged__z"]


def test_a_tool_that_is_on_no_page_any_more_is_marked_as_gone(box: Served, example: Example) -> None:
    pages: list[list[str] | None] = [["a", "b"], ["c"]]
    with paging(pages) as url:
        furnish(box, url, server="paged")
        wire = begun(box)
        listed(wire)
        pages[0] = ["a"]
        gone = "SELECT name FROM mcp_tools WHERE server_id = 'paged' AND gone_at IS NOT NULL"
        listed(wire)
        assert box.sql(gone) == [], "it was there just now, and may be another client's"
        box.sql("UPDATE mcp_tools SET listed_at = ? WHERE name = 'b'", (LONG_AGO,))
        pages[1] = None
        listed(wire)
        assert box.sql(gone) == [], "the list broke off"
        pages[1] = ["c"]
        listed(wire)
        assert box.sql(gone) == [("b",)]
        pages[0] = ["a", "b"]
        listed(wire)
        assert box.sql(gone) == []


def test_a_tool_that_a_server_s_own_door_lists_no_more_is_marked_as_gone(
    box: Served, example: Example
) -> None:
    wire = begun(box, "example")
    listed(wire)
    box.sql(
        "INSERT INTO mcp_tools (server_id, name, definition_hash, accepted_hash, accepted, accepted_by, accepted_at,"
        " first_listed_at, listed_at) VALUES ('example', 'old', '', '', '{}', '', ?, ?, ?)",
        (LONG_AGO,) * 3,
    )
    listed(wire)
    asked = "SELECT name FROM mcp_tools WHERE gone_at IS NOT NULL"
    deadline = time.monotonic() + PATIENCE
    while not (found := box.sql(asked)) and time.monotonic() < deadline:
        listed(wire)  # until the gateway has heard of it
    assert found == [("old",)]


def test_a_list_that_breaks_off_is_said_not_shown_as_whole(box: Served, example: Example) -> None:
    with paging([["a"], None]) as url:
        furnish(box, url, server="paged")
        found = begun(box).ask("tools/list")
        assert not any(tool["name"].startswith("paged") for tool in found["tools"])
        assert found["_meta"] == {"signalbox/unreachable": ["paged"]}
