"""Connecting gives each agent Signalbox's MCP servers, and disconnecting takes them out again byte for byte."""

from __future__ import annotations

import html
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.connecting import connect, http_requests
from tests.connecting.homes import PROGRAM, URL, connected, disconnected, everything, machine, written
from tests.people import signed_in

__all__ = ["machine"]
COMMAND = {"command": PROGRAM, "args": ["mcp"]}
PLACES: dict[str, tuple[str, tuple[str, str], dict[str, Any]]] = {
    "claude-code": (
        ".claude.json",
        ("mcpServers", "signalbox"),
        {"type": "http", "url": f"{URL}/mcp", "headersHelper": f"'{PROGRAM}' headers --mcp"},
    ),
    "codex": (".codex/config.toml", ("mcp_servers", "signalbox"), {**COMMAND, "tool_timeout_sec": 3600}),
    "gemini": (".gemini/settings.json", ("mcpServers", "signalbox"), {**COMMAND, "timeout": 3_600_000}),
    "qwen-code": (".qwen/settings.json", ("mcpServers", "signalbox"), {**COMMAND, "timeout": 3_600_000}),
    "opencode": (
        ".config/opencode/opencode.json",
        ("mcp", "signalbox"),
        {"type": "local", "command": [PROGRAM, "mcp"], "enabled": True},
    ),
    "kilo": (
        ".config/kilo/kilo.json",
        ("mcp", "signalbox"),
        {"type": "local", "command": [PROGRAM, "mcp"], "enabled": True},
    ),
    "copilot": (
        ".copilot/mcp-config.json",
        ("mcpServers", "signalbox"),
        {"type": "local", **COMMAND, "tools": ["*"]},
    ),
    "cursor": (".cursor/mcp.json", ("mcpServers", "signalbox"), COMMAND),
}
BEFORE = {
    ".json": '{\n  "mcpServers": {"mine": {"command": "x"}},\n  "mcp": {"mine": {}}\n}\n',
    ".toml": 'model = "o"\r\n[mcp_servers.mine]\r\ncommand = "x"',
}


def server_of(home: Path, agent: str) -> Any:
    path, (group, name), _ = PLACES[agent]
    text = (home / path).read_bytes().decode()
    value = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    return value.get(group, {}).get(name)


@pytest.mark.parametrize("agent", PLACES)
def test_each_agent_is_given_the_gateway_beside_what_it_has(machine: Path, agent: str) -> None:
    path, (group, _), wanted = PLACES[agent]
    written(machine, path, BEFORE[Path(path).suffix])
    before = everything(machine)
    assert connected(agent) == 0
    assert server_of(machine, agent) == wanted
    text = (machine / path).read_bytes().decode()
    value = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    assert "mine" in value[group]
    once = everything(machine)
    assert connected(agent) == 0
    assert everything(machine) == once
    assert connect.run(["--check"]) == 0
    assert disconnected() == 0
    assert everything(machine) == before


@pytest.mark.parametrize("agent", PLACES)
def test_where_the_agent_wrote_meanwhile_only_ours_is_taken_out(machine: Path, agent: str) -> None:
    path = PLACES[agent][0]
    file = written(machine, path, BEFORE[Path(path).suffix])
    connected(agent)
    more = "\n[later]\na = 1\n" if path.endswith(".toml") else ""
    text = file.read_bytes().decode()
    file.write_bytes((text + more if more else text.replace('"mine"', '"ours"', 1)).encode())
    assert disconnected() == 0
    assert server_of(machine, agent) is None
    assert ("later" if more else "ours") in file.read_text()


GOOSE = ".config/goose/config.yaml"
MINE = "  mine:\n    enabled: true\n"
ENTRY = f"""  signalbox:
    enabled: true
    type: "stdio"
    name: "signalbox"
    description: "MCP servers through Signalbox"
    cmd: "{PROGRAM}"
    args: ["mcp"]
    envs: {{}}
    timeout: 3600
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"extensions:\n{ENTRY}"),
        (f"a: 1\nextensions:\n{MINE}b: 2", f"a: 1\nextensions:\n{ENTRY}{MINE}b: 2"),
        ("a: 1  # mine\n# all\n", f"a: 1  # mine\n# all\nextensions:\n{ENTRY}"),
        ("extensions: {}\n", None),
        ("{extensions: {}}\n", None),
        ("extensions:\n  signalbox:\n    cmd: theirs\n", None),
    ],
)
def test_goose_is_given_the_gateway_in_its_yaml(machine: Path, before: str, after: str | None) -> None:
    (machine / ".config/goose").mkdir(parents=True)
    if before:
        written(machine, GOOSE, before)
    untouched = everything(machine)
    assert connected("goose") == 0
    found = (machine / GOOSE).read_text() if (machine / GOOSE).exists() else ""
    assert found == (before if after is None else after)
    once = everything(machine)
    assert connected("goose") == 0
    assert everything(machine) == once
    assert disconnected() == 0
    assert everything(machine) == untouched


@pytest.mark.django_db
@pytest.mark.parametrize("agent", [*PLACES, "goose"])
def test_each_agents_page_has_the_gateway_to_paste_as_connect_writes_it(machine: Path, agent: str) -> None:
    page = signed_in("viewer").get(f"/ui/connections/{agent}/").text
    shown = html.unescape(page.partition('id="gateway-block"')[2].partition(">")[2].partition("</pre>")[0])
    assert "sbx_" not in shown, "no key stands in it"
    assert connected(agent) == 0
    if agent == "goose":
        wrote = (machine / GOOSE).read_text().splitlines()
        assert shown.splitlines() == [line.replace(PROGRAM, "signalbox") for line in wrote]
        return
    path, (group, name), wanted = PLACES[agent]
    assert f"~/{path}" in page
    value = tomllib.loads(shown) if path.endswith(".toml") else json.loads(shown)
    wrote_here = json.dumps(wanted).replace(f"'{PROGRAM}'", "signalbox").replace(PROGRAM, "signalbox")
    assert json.dumps(value[group][name]).replace("http://testserver", URL) == wrote_here


@pytest.mark.django_db
def test_any_other_client_has_a_block_of_each_kind(machine: Path) -> None:
    page = html.unescape(signed_in("viewer").get("/ui/connections/").text)
    assert '/mcp",' in page
    assert '"Authorization": "Bearer sbx_YOUR_KEY"' in page
    assert '"command": "signalbox"' in page


def test_somebody_elses_server_of_that_name_stays(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(machine, ".cursor/mcp.json", '{"mcpServers": {"signalbox": {"command": "theirs"}}}')
    written(machine, ".codex/config.toml", '[mcp_servers.signalbox]\ncommand = "theirs"\n')
    assert connected("cursor", "codex") == 0
    assert server_of(machine, "cursor") == {"command": "theirs"}
    assert server_of(machine, "codex") == {"command": "theirs"}
    assert capsys.readouterr().out.count("is set up there already") == 2


def test_without_a_gateway_for_the_key_nothing_is_set_up(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_url: str, _key: str) -> None:
        raise http_requests.ServerRequestFailed("HTTP 403: This key is bound to no agent.", 403)

    monkeypatch.setattr(http_requests, "require_mcp_gateway_access", refuses)
    assert connected("cursor") == 0
    assert not (machine / ".cursor/mcp.json").exists()
