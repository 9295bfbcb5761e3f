"""`serve` keeps the host of stdio servers: started when somebody comes, again when it breaks, and gone with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from coordinator.mcp.servers import stdio_host
from tests.gateway.agents import accept_command
from tests.hosting.conftest import SERVER, message
from tests.patience import until
from tests.processes import is_gone, processes_naming, until_gone
from tests.served import Served, children_of

pytestmark = pytest.mark.served


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    served = serve(SIGNALBOX_DISCOVERY_COMMANDS=sys.executable)
    served.sql(
        "INSERT INTO mcp_servers (name, command, args, created_at) VALUES ('double', ?, ?, 1)",
        (sys.executable, json.dumps([SERVER])),
    )
    return served


def switch_on(served: Served, sharing: str = "shared") -> None:
    served.sql(
        "INSERT INTO mcp_upstreams (server_id, transport, sharing, private_network, call_seconds, enabled, changed_at)"
        " VALUES ('double', 'stdio', ?, false, 300, true, '2026-02-20T00:00:00.000000+00:00')",
        (sharing,),
    )


def host(served: Served, settings: object) -> httpx.Client:
    settings.DATA_DIR = served.folder  # type: ignore[attr-defined]
    until(stdio_host.ensure_host_socket_path().exists)  # `serve` answers before its keeper does
    transport = httpx.HTTPTransport(uds=str(stdio_host.ensure_host_socket_path()), verify=False)
    return httpx.Client(transport=transport, base_url="http://host", timeout=60)


def begun(client: httpx.Client) -> httpx.Response:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}
    return client.post(
        stdio_host.build_hosted_server_url_path("double"), content=message("initialize", 0, **params)
    )


def echoed(client: httpx.Client, session: str) -> httpx.Response:
    raw = message("tools/call", 1, name="echo")
    return client.post(
        stdio_host.build_hosted_server_url_path("double"), content=raw, headers={"mcp-session-id": session}
    )


def test_a_server_runs_once_an_admin_switched_it_on_and_outlives_its_host(
    served: Served, settings: object
) -> None:
    client = host(served, settings)
    answer = begun(client)
    assert (answer.status_code, "no admin has switched that on" in answer.text) == (503, True)
    switch_on(served)
    time.sleep(1.1)  # the host reads a server's rows once a second
    answer = begun(client)
    assert (answer.status_code, "No admin has accepted" in answer.text) == (503, True)
    accept_command(served, "double")
    time.sleep(1.1)
    answer = begun(client)
    assert answer.status_code == 200, answer.text
    instance = echoed(client, answer.headers["mcp-session-id"]).json()["result"]["content"][0]["text"]
    ((state, server),) = served.sql("SELECT state, pid FROM mcp_processes WHERE server_id = 'double'")
    assert state == "running"

    (server_host,) = [one for keeper in keepers_of(served) for one in children_of(keeper) if not is_gone(one)]
    os.kill(server_host, signal.SIGKILL)
    until_gone(server_host, server)
    answer = begun(host(served, settings))
    assert answer.status_code == 200
    second = echoed(client, answer.headers["mcp-session-id"]).json()["result"]["content"][0]["text"]
    assert second.rsplit(" ", 1)[1] != instance.rsplit(" ", 1)[1]

    keepers = keepers_of(served)
    served.stop()
    until_gone(*keepers)
    until(lambda: not processes_naming(str(served.folder)))


def test_a_keeper_that_was_killed_is_started_again(served: Served, settings: object) -> None:
    switch_on(served)
    accept_command(served, "double")
    assert begun(host(served, settings)).status_code == 200
    (keeper,) = [pid for pid in keepers_of(served) if not is_gone(pid)]
    hosts = children_of(keeper)
    os.kill(keeper, signal.SIGKILL)
    until_gone(keeper, *hosts)
    (second,) = until(lambda: [pid for pid in keepers_of(served) if pid != keeper and not is_gone(pid)])
    until(lambda: is_listening(stdio_host.ensure_host_socket_path()))
    assert begun(host(served, settings)).status_code == 200
    assert [pid for pid in keepers_of(served) if not is_gone(pid)] == [second]


def is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


def keepers_of(served: Served) -> list[int]:
    assert served.process is not None
    return [
        one
        for one in children_of(served.process.pid)
        if b"keeper.py" in Path(f"/proc/{one}/cmdline").read_bytes()
    ]
