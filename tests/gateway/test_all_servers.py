"""`/mcp`: the tools of all servers that are open to an agent, at one address."""

from __future__ import annotations

import pytest

from tests.gateway import example_server
from tests.gateway.agents import Wire, furnish, rule, text_of
from tests.gateway.example_server import Example
from tests.gateway.test_held_calls import TASKS, decide, pending
from tests.served import Served

pytestmark = pytest.mark.served


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
