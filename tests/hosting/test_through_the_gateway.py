"""An agent calls a tool of a stdio server through the gateway: allowed, denied, by the bridge, and told in figures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.claude_code.test_deciding import AGENT_KEY, prepare
from tests.gateway.agents import LONG_AGO, Wire, accept_command, text_of
from tests.gateway.test_held_calls import InBackground
from tests.hosting.conftest import SERVER, message
from tests.hosting.test_keeper import keepers_of
from tests.patience import PATIENCE, until
from tests.processes import is_gone, until_gone
from tests.served import ROOT, Served, children_of
from tests.shared_server import SharedServer

pytestmark = pytest.mark.served


def register(served: Served) -> None:
    served.sql(
        "INSERT INTO mcp_servers (name, command, args, created_at) VALUES ('double', ?, ?, 1)",
        (sys.executable, json.dumps([SERVER])),
    )


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    served = serve(SIGNALBOX_DISCOVERY_COMMANDS=sys.executable)
    prepare(served)
    register(served)
    served.sql(
        "INSERT INTO mcp_upstreams (server_id, transport, sharing, private_network, call_seconds, enabled, changed_at)"
        " VALUES ('double', 'stdio', 'shared', false, 300, true, '2026-02-20T00:00:00.000000+00:00')"
    )
    admin = served.sign_in("admin")
    page = admin.get("/ui/mcp/servers/double/").text
    seen = page.partition('name="command" value="')[2].partition('"')[0]
    assert admin.post("/ui/mcp/command/double/", data={"command": seen}).status_code in {200, 302}
    served.sql(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, tool_name, permission, granted_at)"
        " VALUES ('tool_grant', 'agent.shop', 'double', 'echo', 'allow', '2026-02-20T00:00:00.000000+00:00')"
    )
    return served


def ask(lines: subprocess.Popen[bytes], method: str, number: int, **params: Any) -> dict[str, Any]:
    assert lines.stdin is not None
    assert lines.stdout is not None
    lines.stdin.write(message(method, number, **params).encode() + b"\n")
    lines.stdin.flush()
    while True:
        found: dict[str, Any] = json.loads(lines.stdout.readline())
        if found.get("id") == number:
            return found


def test_a_stdio_server_is_called_through_the_gateway_by_the_bridge_also_once_its_host_died(
    served: Served,
) -> None:
    bridge = subprocess.Popen(
        [sys.executable, "-m", "coordinator.client.main", "mcp", "double"],
        cwd=ROOT,
        env={
            "PATH": os.defpath,
            "HOME": "/nonexistent",
            "SIGNALBOX_URL": served.url,
            "SIGNALBOX_KEY": AGENT_KEY,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        about = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        begun = ask(bridge, "initialize", 1, **about)
        assert "protocolVersion" in begun["result"], begun
        allowed = ask(bridge, "tools/call", 2, name="echo", arguments={"a": 1})
        assert "echo {'a': 1}" in allowed["result"]["content"][0]["text"], allowed
        denied = ask(bridge, "tools/call", 3, name="die", arguments={})
        assert denied["result"]["isError"] is True, denied
        hosts = [one for keeper in keepers_of(served) for one in children_of(keeper) if not is_gone(one)]
        for host in hosts:
            os.kill(host, signal.SIGKILL)  # and with it go all sessions
        until_gone(*hosts)
        again = ask(bridge, "tools/call", 4, name="echo", arguments={"a": 2})
        assert "echo {'a': 2}" in again["result"]["content"][0]["text"], again
    finally:
        bridge.kill()
        bridge.wait()


def test_without_a_host_the_gateway_says_so(shared_server: SharedServer) -> None:
    served = shared_server.fresh()
    prepare(served)
    register(served)
    client = httpx.Client(
        base_url=served.url, headers={"Authorization": f"Bearer {AGENT_KEY}"}, timeout=PATIENCE
    )
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    accept = {"Accept": "application/json, text/event-stream"}
    answer = client.post("/mcp/double", content=message("initialize", 1, **params), headers=accept)
    assert "must first allow that" in answer.text or answer.status_code >= 400, answer.text


def test_no_call_passes_that_a_brake_meets_while_its_server_starts(served: Served, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(0o755)  # a server that root starts is another user
    starts = given / "starts"
    starts.touch()
    starts.chmod(0o644)
    served.sql("UPDATE mcp_upstreams SET folders = ?", (json.dumps([str(starts.parent)]),))
    served.sql("UPDATE mcp_servers SET args = ?", (json.dumps([SERVER, str(starts)]),))
    accept_command(served, "double")
    wire = Wire(served, key=AGENT_KEY, server="double")
    wire.initialize()
    wire.call("echo")
    ((pid,),) = served.sql("SELECT pid FROM mcp_processes WHERE state = 'running'")
    starts.unlink()
    os.kill(pid, signal.SIGKILL)
    begun = "SELECT pid FROM mcp_processes WHERE state = 'running' AND pid <> ?"
    deadline = time.monotonic() + PATIENCE
    while served.sql(begun, (0,)):
        assert time.monotonic() < deadline, "its end was not noticed"
        time.sleep(0.02)
    waiting = InBackground(lambda: wire.call("echo"))
    while not served.sql(begun, (pid,)):
        assert time.monotonic() < deadline, "it was not started again"
        time.sleep(0.02)
    put = "INSERT INTO brakes (reach, name, reason, set_at, set_by) VALUES ('everything', '', '', ?, 'user:ann')"
    served.sql(put, (LONG_AGO,))
    try:
        starts.touch()
        assert "put the brake on" in text_of(waiting.result())
    finally:
        served.sql("DELETE FROM brakes")
    assert " 1 " in text_of(wire.call("echo")), "the call that met the brake went in"


ODD_SERVER = ROOT / "tests/data/cases/24-mcp-listing-server.py"
RESULTS = {
    "structured_only": '{"content": [], "structuredContent": {"id": 12345678901234567890123, "rows": [{"n": 1.0}]}, '
    '"_meta": {"trace": "t"}}',
    "failed": '{"content": [{"type": "text", "text": "no such order"}], "isError": true}',
    "echo_id": '{"content": [{"type": "text", "text": "{\\"id\\": 12345678901234567890123}"}], '
    '"structuredContent": {"id": 12345678901234567890123}}',
    "all_kinds": '{"type": "hologram", "x": 1}',
}


def test_results_pass_byte_for_byte(served: Served) -> None:
    served.sql(
        "INSERT INTO mcp_servers (name, command, args, created_at, default_policy) VALUES ('odd', ?, ?, 1, 'opt-out')",
        (sys.executable, json.dumps([str(ODD_SERVER), "results"])),
    )
    served.sql(
        "INSERT INTO mcp_upstreams (server_id, transport, sharing, private_network, call_seconds, enabled, changed_at)"
        " VALUES ('odd', 'stdio', 'shared', false, 300, true, '2026-02-20T00:00:00.000000+00:00')"
    )
    accept_command(served, "odd")
    for server in ("odd", ""):
        wire = Wire(served, key=AGENT_KEY, server=server)
        wire.initialize()
        for name, expected in RESULTS.items():
            called = wire.message("tools/call", {"name": name if server else f"odd__{name}"})
            body = json.dumps(called)[:-2] + ', "arguments": {"id": 12345678901234567890123}}}'
            assert expected in wire.post(body.encode()).text


@pytest.fixture
def wire(served: Served) -> Wire:
    served.sql("UPDATE mcp_servers SET default_policy = 'opt-out'")
    wire = Wire(served, key=AGENT_KEY, server="double")
    wire.initialize()
    wire.ask("tools/list")
    return wire


def set_limits(served: Served, tool: str = "", **fields: str | int) -> None:
    data = {"server": "double", "tool": tool} | {name: str(value) for name, value in fields.items()}
    assert "Saved." in served.sign_in("admin").post("/ui/mcp/limits/save/", data=data).text


def test_a_hosted_servers_results_are_cut_and_masked(served: Served, wire: Wire) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    set_limits(served, result_kib=2, masks="yes")
    until(lambda: "the result is longer than its limit" in text_of(wire.call("echo", text="x" * 9_000)))
    assert token not in text_of(wire.call("echo", text=f"see {token} there"))


def test_a_hosted_server_gets_as_many_calls_a_minute_as_its_tool_may(served: Served, wire: Wire) -> None:
    set_limits(served, tool="echo", calls_per_minute=1)
    until(lambda: "may get 1 calls of echo a minute" in text_of(wire.call("echo")))


def test_a_hosted_server_that_takes_too_long_has_failed_and_hears_of_it(served: Served, wire: Wire) -> None:
    set_limits(served, tool="wait", call_seconds=1)
    until(lambda: "within 1 second" in text_of(wire.call("wait")))
    assert wire.call("echo")["content"], "others go on"


@pytest.mark.parametrize("tool", ["die", "flood"])
def test_a_hosted_server_that_ends_during_calls_is_left_alone_for_a_while(
    served: Served, wire: Wire, tool: str
) -> None:
    set_limits(served, breaker_failures=2, breaker_seconds=600)
    until(lambda: "gets no calls for" in text_of(wire.call(tool)))
    assert "gets no calls for" in text_of(wire.call("echo"))
    assert "open" in served.sign_in("admin").get("/ui/mcp/servers/double/").text
