"""What an allowed agent hears through the gateway is what the server says."""

from __future__ import annotations

import time

import pytest

from tests.gateway.agents import LONG_AGO, OTHER_KEY, GatewayRefused, Wire, rule, text_of
from tests.gateway.example_server import PIXEL, Example
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = pytest.mark.served


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_tools_resources_and_prompts_pass(box: Served, example: Example, version: str) -> None:
    wire = Wire(box, stateless=version == "2026-07-28")
    if not wire.stateless:
        assert wire.initialize(version)["protocolVersion"] == version
    assert [tool["name"] for tool in wire.ask("tools/list")["tools"]] == [
        "echo",
        "picture",
        "slow",
        "write",
        "zap",
    ]
    assert text_of(wire.call("echo", text="é ☃")) == "echo: é ☃"
    assert wire.call("picture")["content"][0]["data"] == PIXEL
    assert wire.ask("resources/read", {"uri": "example://note"})["contents"][0]["text"] == "a note"
    assert "Greet Ada" in str(wire.ask("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}))
    assert example.calls["echo é ☃"] == 1


def test_each_call_stands_in_a_timeline_with_the_server_s_time(box: Served) -> None:
    wire = Wire(box)
    wire.initialize()
    wire.call("echo", text="seen")
    asked = (
        "SELECT e.event_type, e.tool_name, s.agent_name FROM events e JOIN sessions s ON s.session_id = e.session_id"
        " WHERE e.tool_name = 'mcp__example__echo' ORDER BY e.id"
    )
    deadline = time.monotonic() + PATIENCE
    while len(rows := box.sql(asked)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert rows == [(kind, "mcp__example__echo", "agent.one") for kind in ("pre_tool", "post_tool")]


def test_a_session_goes_on_after_a_restart(box: Served) -> None:
    wire = Wire(box)
    wire.initialize()
    box.stop()
    box.start()
    assert text_of(wire.call("echo", text="again")) == "echo: again"


def test_a_session_is_its_key_s_alone(box: Served) -> None:
    wire, other = Wire(box), Wire(box, key=OTHER_KEY)
    wire.initialize()
    other.session = wire.session
    with pytest.raises(GatewayRefused) as refused:
        other.call("echo", text="stolen")
    assert refused.value.status == 404


def test_a_rule_counts_for_the_very_next_call(box: Served, example: Example) -> None:
    wire = Wire(box)
    wire.initialize()
    for round_ in range(3):
        assert text_of(wire.call("zap")) == "zapped"
        rule(box, "mcp__example__zap", "deny")
        assert "Denied" in text_of(wire.call("zap"))
        box.sql("DELETE FROM tool_rules")
        assert example.calls["zap"] == round_ + 1


def test_a_page_of_another_site_is_refused(box: Served) -> None:
    wire = Wire(box)
    wire.http.headers["Origin"] = "http://evil.example.com"
    with pytest.raises(GatewayRefused) as refused:
        wire.initialize()
    assert refused.value.status == 403


def test_a_denied_tool_is_not_listed_and_does_not_run(box: Served, example: Example) -> None:
    rule(box, "mcp__example__zap", "deny")
    wire = Wire(box)
    wire.initialize()
    assert "zap" not in [tool["name"] for tool in wire.ask("tools/list")["tools"]]
    result = wire.call("zap")
    assert result["isError"]
    assert "Denied" in text_of(result)
    assert not example.calls


def test_a_client_that_calls_itself_otherwise_escapes_no_rule_and_no_brake(
    box: Served, example: Example
) -> None:
    wire = Wire(box, name="claude-code")
    wire.initialize()
    rule(box, "mcp__example__zap", "allow", program="claude-code")
    rule(box, "mcp__example__zap", "deny", program="codex")
    assert "zap" not in [tool["name"] for tool in wire.ask("tools/list")["tools"]]
    assert "Denied" in text_of(wire.call("zap"))
    for reach, name in (("agent", "codex"), ("host", "anywhere.example")):
        put = "INSERT INTO brakes (reach, name, reason, set_at, set_by) VALUES (?, ?, '', ?, 'user:ann')"
        box.sql(put, (reach, name, LONG_AGO))
        try:
            assert "put the brake on" in text_of(wire.call("echo", text="x"))
        finally:
            box.sql("DELETE FROM brakes")
    denials = "SELECT count(*) FROM audit_logs WHERE event_type = 'TOOL_CALL_DENIED'"
    assert box.sql(f"{denials} AND reason LIKE '%put the brake on%'") == [(2,)], (
        "each call that a brake stopped is audited"
    )
    assert not example.calls
    assert text_of(wire.call("echo", text="x")) == "echo: x"


def test_a_tool_or_server_that_nobody_knows_is_denied(box: Served, example: Example) -> None:
    wire = Wire(box)
    wire.initialize()
    assert "has no tool" in text_of(wire.call("format_disk"))
    wire.path = "/mcp/elsewhere"
    with pytest.raises(GatewayRefused) as refused:
        wire.call("echo", text="x")
    assert refused.value.status == 404


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":{"name":"zap"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","Method":"tools/call","params":{"name":"zap"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Name":"zap","arguments":{}}}',
        b'{"jsonrpc":"2.0","id":1,"error":{},"Method":"tools/call","params":{"name":"zap","arguments":{}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Arguments":{"text":"x"}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","param\xc5\xbf":{"name":"zap"}}',
        b'{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"zap","arguments":{}}}',
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"zap","arguments":{}}}',
    ],
)
def test_what_two_parsers_could_read_in_two_ways_is_refused(
    box: Served, example: Example, body: bytes
) -> None:
    wire = Wire(box)
    wire.initialize()
    assert wire.post(body).status_code == 400
    assert not example.calls
