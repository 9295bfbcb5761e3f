"""A stream that ends before its response: the gateway asks for the rest of it, and says so, and when it is not told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.client import sse
from tests.gateway import leaving_server
from tests.gateway.agents import Wire, furnish, rule, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.leaving_server import RETRY, LeavingServer
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.patience import until
from tests.served import Served


@pytest.fixture
def leaving() -> Iterator[LeavingServer]:
    with leaving_server.running() as found:
        yield found


@pytest.fixture
def box(served: Served, leaving: LeavingServer) -> Served:
    served.emptied(*TABLES)
    furnish(served, leaving.url, server="leaving")
    return served


def begun(box: Served, server: str = "", **options: Any) -> Wire:
    wire = Wire(box, server=server, **options)
    if not wire.stateless:
        wire.initialize()
    return wire


def called(wire: Wire, tool: str) -> dict[str, Any]:
    """Make a call that is approved; return its result."""
    rule(wire.box, "mcp__leaving__*", "ask")
    name = tool if wire.path.endswith("leaving") else f"leaving__{tool}"
    told = {"name": name, "arguments": {}, "_meta": {"progressToken": 7}}
    waiting = InBackground(lambda: wire.ask("tools/call", told))
    (request_id,) = pending(wire.box)
    decide(wire.box, request_id)
    result: dict[str, Any] = waiting.result()
    return result


def told_of(box: Served, tool: str) -> tuple[str | None, dict[str, Any]]:
    """Return the error that the timeline has of a call's end, and what the gateway told of it."""
    ends = (
        "SELECT e.error, c.extra FROM events e JOIN event_context c ON c.event_id = e.id"
        " WHERE e.event_type = 'post_tool' AND e.tool_name = ? ORDER BY e.id DESC LIMIT 1"
    )
    ((error, extra),) = until(lambda: box.sql(ends, (f"mcp__leaving__{tool}",)), "the call has no end")
    return error, (json.loads(extra) if isinstance(extra, str) else extra)["gateway"]


@pytest.mark.served
@pytest.mark.parametrize("stateless", [False, True])
def test_an_approved_call_gets_the_result_that_its_server_tells_when_it_is_asked_again(
    box: Served, leaving: LeavingServer, stateless: bool
) -> None:
    assert text_of(called(begun(box, stateless=stateless), "polled")) == "polled, after all"
    assert leaving.calls == {"polled": 1}
    assert [told for told, _ in leaving.asked] == ["polled-0", "polled-1"]
    assert all(after >= RETRY for _, after in leaving.asked)
    error, told = told_of(box, "polled")
    assert (error, told["resumed"]) == (None, 2)
    assert box.sql("SELECT state FROM mcp_gateway_calls") == [("done",)]


@pytest.mark.served
@pytest.mark.parametrize("server", ["", "leaving"])
def test_an_approved_call_gets_its_result_though_the_line_to_its_server_broke(
    box: Served, leaving: LeavingServer, server: str
) -> None:
    wire = begun(box, server)
    assert text_of(called(wire, "cut")) == "cut, after all"
    assert leaving.calls == {"cut": 1}
    assert [told for told, _ in leaving.asked] == ["cut-1"]
    assert [one["params"]["message"] for one in wire.heard if one["params"].get("message") == "half"]


@pytest.mark.served
def test_an_allowed_call_at_the_door_of_all_servers_gets_its_result(
    box: Served, leaving: LeavingServer
) -> None:
    assert text_of(begun(box).call("leaving__polled")) == "polled, after all"
    assert told_of(box, "polled")[1]["resumed"] == 2


@pytest.mark.served
def test_the_timeline_shows_that_the_rest_was_asked_for(box: Served) -> None:
    begun(box).call("leaving__polled")
    told_of(box, "polled")
    ((session,),) = box.sql("SELECT DISTINCT session_id FROM events WHERE tool_name = 'mcp__leaving__polled'")
    page = box.sign_in("viewer").get(f"/ui/sessions/{session}/").text
    assert "asked 2 times for the rest" in " ".join(page.split())


@pytest.mark.served
@pytest.mark.parametrize(
    ("tool", "why", "asked"),
    [
        ("forgets", "lost this session when asked for the rest", 1),
        ("refuses", "refused (405) when asked for the rest", 1),
        ("without_id", "ended its answer without a response", 0),
    ],
)
def test_an_approved_call_may_have_run_where_the_rest_is_not_told(
    box: Served, leaving: LeavingServer, tool: str, why: str, asked: int
) -> None:
    words = text_of(called(begun(box), tool))
    assert why in words
    assert "may have run" in words
    assert leaving.calls == {tool: 1}, "it was sent again"
    assert len(leaving.asked) == asked
    error, told = told_of(box, tool)
    assert why in str(error)
    assert told.get("resumed", 0) == asked
    lost = "SELECT reason FROM audit_logs WHERE event_type = 'MCP_CALL_LOST' ORDER BY id DESC LIMIT 1"
    reason = box.sql(lost)[0][0]
    assert why in reason
    assert "may have run" in reason


@pytest.mark.parametrize(
    ("stream", "place"),
    [
        (b"id: 1\ndata: {}\n\n", (b"1", 0.0)),
        (b"retry: 1500\r\nid:2\r\ndata:\r\n\r\n", (b"2", 1.5)),
        (b"id: 1\n\nid\ndata: x\n\n", (b"", 0.0)),  # who says so takes it back
        (b"id: 1\n\nid: 2\0\n\n", (b"1", 0.0)),
        (b"id: 1\n\ndata: id: 5\n\n", (b"1", 0.0)),
        (b"identity: 1\nretry: soon\n\n", (b"", 0.0)),
        (b"id: " + b"x" * 5000 + b"\n\n", (b"", 0.0)),
    ],
)
def test_how_far_a_stream_was_heard_is_what_its_events_say(stream: bytes, place: tuple[bytes, float]) -> None:
    found = sse.StreamPosition()
    for event in sse.EventSplitter().feed(stream):
        found.update_position_from_event(event)
    assert (found.last_id, found.retry) == place
