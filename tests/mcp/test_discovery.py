"""A server is started, asked for its tools within limits, and ended with all it started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp
import pytest

from coordinator.errors import ServiceBusy, UnprocessableRequest
from coordinator.mcp.isolation.process_isolation import Isolation
from coordinator.mcp.servers import discovery
from coordinator.models import AuditLog, McpServer, McpTool
from tests.access.cases import add_server
from tests.patience import until
from tests.people import signed_in
from tests.processes import processes_naming

SERVER = """
import json, os, sys
empty = {"inputSchema": {"type": "object"}}
print("a stray line, as servers write them", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "t", "version": "1"}}
    elif not message.get("params", {}).get("cursor"):
        result = {"tools": [{"name": "env", "description": json.dumps(dict(os.environ)), **empty}], "nextCursor": "2"}
    else:
        result = {"tools": [{"name": "second", "annotations": {"readOnlyHint": True, "x-cost": 3}, **empty}]}
    note = {"method": "notifications/message", "params": {"level": "info", "data": "asked"}}
    print(json.dumps({"jsonrpc": "2.0", **note}), flush=True)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""

ABOUT = {"name": "t", "version": "1"}


def answering(answer: dict[str, Any]) -> str:
    """Return a server that gives the first question this answer and then waits."""
    text = json.dumps({"jsonrpc": "2.0", "id": 1, **answer})
    return f"input(); print({text!r}, flush=True); input(); input()"


def with_a_child(note: Path) -> str:
    """Return the beginning of a server that starts a child which names the file `note`, and makes that file."""
    return (
        "import subprocess, sys\n"
        "quiet = subprocess.DEVNULL\n"
        "wait = 'import time; time.sleep(60)'\n"
        f"subprocess.Popen([sys.executable, '-c', wait, {str(note)!r}], stdin=quiet, stdout=quiet, stderr=quiet)\n"
        f"open({str(note)!r}, 'w').close()\n"
    )


@pytest.fixture(autouse=True)
def _this_python(settings: Any) -> None:
    settings.DISCOVERY_COMMANDS = [sys.executable]


def ask(source: str, **given: Any) -> discovery.ToolListing:
    return discovery.start_server_and_list_tools(sys.executable, ["-c", source], Isolation(**given))


def test_all_pages_of_tools_are_listed() -> None:
    listing = ask(SERVER)
    assert ([tool.name for tool in listing.tools], listing.complete) == (["env", "second"], True)


def test_annotations_are_kept_as_the_server_writes_them() -> None:
    assert ask(SERVER).tools[1].content["annotations"] == {"readOnlyHint": True, "x-cost": 3}


def test_a_server_made_with_the_official_kit_is_understood() -> None:
    source = (
        "from mcp.server.mcpserver import MCPServer\n"
        "server = MCPServer('adder')\n"
        "@server.tool()\n"
        "def add(a: int, b: int) -> int:\n"
        "    'Add two numbers.'\n"
        "    return a + b\n"
        "server.run()"
    )
    (tool,) = ask(source, folders=(str(Path(mcp.__file__).parents[1]),)).tools
    assert (tool.name, tool.content["description"]) == ("add", "Add two numbers.")
    assert set(tool.content["inputSchema"]["properties"]) == {"a", "b"}


def test_a_server_that_knows_no_initialize_is_understood() -> None:
    modern = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    common = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
    if message["method"] == "server/discover":
        answer["result"] = {"supportedVersions": ["2026-07-28"], "capabilities": {}, **common}
    elif message["method"] == "tools/list":
        answer["result"] = {"tools": [{"name": "only", "inputSchema": {"type": "object"}}], **common}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"""
    assert [tool.name for tool in ask(modern).tools] == ["only"]


def test_the_server_gets_none_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_SECRET_KEY", "not for others")
    monkeypatch.setenv("DATABASE_URL", "postgres://not-for-others")
    told = json.loads(ask(SERVER).tools[0].content["description"])
    assert set(told) - {"LC_CTYPE"} == {"PATH", "HOME", "PWD", "TMPDIR", "LANG"}
    assert told["HOME"] != os.environ.get("HOME")


ODD_LISTS = Path(__file__).parents[1] / "data/cases/24-mcp-listing-server.py"


@pytest.mark.parametrize(
    ("mode", "names", "left_out", "cut_off"),
    [
        ("empty-cursor", {"first", "second"}, set(), ""),
        ("stuck-cursor", {f"t{number}" for number in range(8)}, set(), "its cursor stands still"),
        ("null-cursor", {"only"}, set(), ""),
        ("many-pages", {f"t{number}" for number in range(200)}, set(), "after 20 pages"),
        (
            "one-bad-schema",
            {"good_one", "any_of", "good_two", "null_schema", "out"},
            {"boolean_schema", "title_is_number"},
            "",
        ),
        ("same-name", {"read"}, {"search"}, ""),
        (
            "odd-schemas",
            {"ref", "one_of", "root_all_of", "no_props", "typeless", "two_types", "bad_name_prop", "deep"}
            | {"annotated"},
            set(),
            "",
        ),
        (
            "long-names",
            {
                "a" * 64,
                "b" * 128,
                "admin.tools.list",
                "with space",
                "ünïcödé",
                "slash/name",
                "Search",
                "search",
            }
            | {"x__y"},
            {"c" * 200, "tool 11"},
            "",
        ),
    ],
)
def test_of_an_odd_list_the_odd_tools_are_left_out(
    mode: str, names: set[str], left_out: set[str], cut_off: str
) -> None:
    source = f"import sys; sys.argv[1:] = [{mode!r}]\n{ODD_LISTS.read_text()}"
    listing = ask(source)
    assert {tool.name for tool in listing.tools} == names
    assert {tool.name for tool in listing.left_out} == left_out
    assert cut_off in listing.cut_off
    assert bool(cut_off) == bool(listing.cut_off)


def test_half_a_character_of_a_tool_is_replaced() -> None:
    source = SERVER.replace('"name": "second"', r'"name": "second", "description": "\ud800"')
    listing = ask(source)
    assert [tool.name for tool in listing.tools] == ["env", "second"]
    assert listing.tools[1].content["description"] == "\ufffd"
    assert listing.left_out == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import sys; sys.exit('no such module')", "ended before it answered. It said: no such module"),
        ("print('{' * 10)", "ended before it answered"),
        ("print('x' * 5_000_000)", "more than 4000000 bytes"),
        ("while True: print('{}')", "more than 10000 lines"),
        (answering({"error": {"code": -32000, "message": "not today"}}), "refused: not today"),
        (
            answering({"result": {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": ABOUT}}),
            "Unsupported protocol version.* 1999-01-01",
        ),
        (
            SERVER.replace('"tools": [', '"tools": 1, "t": ['),
            "is not MCP: tools: Input should be a valid list",
        ),
    ],
)
def test_what_goes_wrong_is_said(source: str, says: str) -> None:
    with pytest.raises(UnprocessableRequest, match=says):
        ask(source)


def test_a_server_that_ended_before_it_was_asked_is_told_from_one_that_refuses(tmp_path: Path) -> None:
    from coordinator.mcp.servers import stdio as mcp_stdio  # it brings the kit along, half a second

    process = discovery.start_server_for_tool_discovery(
        tmp_path, sys.executable, ["-c", "import sys; sys.exit('no licence')"], Isolation()
    )
    try:
        process.wait()
        with pytest.raises(UnprocessableRequest, match=r"ended before it answered\. It said: no licence"):
            mcp_stdio.list_tools_of_running_server(process, within=5, most_bytes=1000)
    finally:
        discovery.kill_discovery_process(process)


def test_a_server_that_floods_stderr_is_heard_out_and_little_of_it_shown() -> None:
    source = "import sys; sys.stderr.write('x' * 20_000_000 + 'the end'); sys.exit(1)"
    with pytest.raises(
        UnprocessableRequest, match=r"ended before it answered\. It said: x+the end$"
    ) as refused:
        ask(source)
    assert len(str(refused.value.detail)) < 700


def test_a_server_that_ends_by_itself_leaves_no_children(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)  # root starts servers as nobody
    note = tmp_path / "child"
    with pytest.raises(UnprocessableRequest, match="ended before it answered"):
        ask(with_a_child(note) + "import os; os._exit(3)", writable_folders=(str(tmp_path),))
    assert note.exists()
    until(lambda: not processes_naming(str(note)), within=2)


def test_the_children_of_a_server_that_answered_are_ended(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)  # root starts servers as nobody
    note = tmp_path / "child"
    assert len(ask(with_a_child(note) + SERVER, writable_folders=(str(tmp_path),)).tools) == 2
    assert note.exists()
    until(lambda: not processes_naming(str(note)), within=2)


def test_a_silent_server_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "ANSWER_WITHIN", 1.5)
    tmp_path.chmod(0o777)  # root starts servers as nobody
    note = tmp_path / "child"
    source = with_a_child(note) + "import time; time.sleep(60)"
    with pytest.raises(UnprocessableRequest, match="did not answer within"):
        ask(source, writable_folders=(str(tmp_path),))
    assert note.exists()
    until(lambda: not processes_naming(str(note)), within=2)


def test_only_allowed_commands_are_started(settings: Any) -> None:
    settings.DISCOVERY_COMMANDS = ["npx"]
    with pytest.raises(UnprocessableRequest, match="may not be started here"):
        ask(SERVER)


def test_a_program_that_is_not_there_is_said(settings: Any) -> None:
    settings.DISCOVERY_COMMANDS = ["no-such-program"]
    with pytest.raises(UnprocessableRequest, match="cannot be started"):
        discovery.start_server_and_list_tools("no-such-program", [], Isolation())


def test_one_server_is_asked_at_a_time() -> None:
    with discovery._one_at_a_time, pytest.raises(ServiceBusy):
        ask(SERVER)


def test_the_kit_is_not_imported_until_somebody_discovers() -> None:
    """It takes half a second and 27 MB, which no start and no restart should pay for."""
    source = (
        "import sys, django; django.setup(); import coordinator.urls, coordinator.asgi\n"
        "assert 'coordinator.mcp.servers.discovery' in sys.modules\n"
        "assert not {'mcp', 'mcp_types', 'coordinator.mcp.servers.stdio'} & set(sys.modules)"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    subprocess.run([sys.executable, "-c", source], check=True, env=environment)


@pytest.mark.django_db
def test_an_admin_discovers_tools_and_an_approver_does_not() -> None:
    add_server("s")
    McpServer.objects.filter(pk="s").update(command=sys.executable, args=["-c", SERVER])
    assert signed_in("approver").post("/ui/mcp/discover/s/").status_code == 403
    assert not McpTool.objects.exists()
    admin = signed_in("admin")
    McpServer.objects.filter(pk="s").update(args=["-c", SERVER.replace("second", "env")])
    admin.post("/ui/mcp/discover/s/")
    assert not McpTool.objects.exists()  # two tools of one name: nothing of it is stored
    McpServer.objects.filter(pk="s").update(args=["-c", SERVER])
    admin.post("/ui/mcp/discover/s/")
    assert set(McpTool.objects.values_list("name", flat=True)) == {"env", "second"}
    assert AuditLog.objects.filter(event_type="MCP_TOOLS_LISTED", target_id="s").count() == 1
