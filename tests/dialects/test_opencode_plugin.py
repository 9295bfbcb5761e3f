"""The plugin itself, run by Node as OpenCode runs it, against the served program and against none."""

from __future__ import annotations

import json
import shutil
import socket
import stat
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from coordinator.client import held
from coordinator.client.settings import Settings
from tests.claude_code.test_deciding import rules
from tests.dialects import opencode as recording
from tests.dialects.agent import Agent, recorded
from tests.served import KEYS, Served

NODE = shutil.which("node")
pytestmark = [pytest.mark.served, pytest.mark.skipif(NODE is None, reason="Node is not installed")]
HERE = Path(__file__).parent
PLUGIN = Path(settings.BASE_DIR) / "static" / "plugins" / "opencode.js"


class OpenCode(Agent):
    name = "opencode"


@pytest.fixture
def opencode(served: Served) -> OpenCode:
    return OpenCode(served)


def drive(home: Path, steps: list[dict[str, Any]], **environment: str) -> list[dict[str, Any]]:
    """Run the plugin through these steps with this home; return what came of each."""
    copy = home / "plugin.mjs"
    copy.write_bytes(PLUGIN.read_bytes())
    assert NODE
    ran = subprocess.run(
        [NODE, str(HERE / "drive_plugin.mjs")],
        input=json.dumps({"plugin": str(copy), "steps": steps}),
        env={"HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def connected(opencode: OpenCode) -> dict[str, str]:
    return {"SIGNALBOX_URL": opencode.served.url, "SIGNALBOX_KEY": KEYS["agent"]}


def push(opencode: OpenCode, call_id: str = "call_1") -> dict[str, Any]:
    """Return the step in which OpenCode is about to push."""
    return {
        "call": "tool.execute.before",
        "input": {"tool": "bash", "sessionID": opencode.session, "callID": call_id},
        "output": {"args": {"command": "git push", "description": "Push"}},
    }


def nobody() -> str:
    """Return an address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_the_recorded_sessions_are_told_as_the_plugin_is_handed_them(
    opencode: OpenCode, tmp_path: Path
) -> None:
    steps: list[dict[str, Any]] = []
    for line in json.loads(
        json.dumps(recorded("opencode", "plugin.jsonl")).replace(recording.RAN, opencode.session)
    ):
        given = line["d"]
        if line["t"] == "event" and given["type"] != "permission.asked":
            steps.append({"call": "event", "input": {"event": given}})
        elif line["t"] in {"chat.message", "tool.before"}:
            name = line["t"].replace("tool.before", "tool.execute.before")
            steps.append({"call": name, "input": given["i"], "output": given["o"]})
    drive(
        tmp_path, [*steps, {"call": "settle"}, {"call": "dispose"}, {"call": "settle"}], **connected(opencode)
    )
    assert sorted(opencode.told("e.event_type, e.tool_name"), key=str) == [
        *[("message", None)] * 3,
        *[("model_request", None)] * 2,
        ("post_tool", "bash"),
        ("post_tool", "invalid"),
        ("pre_tool", "bash"),
        ("pre_tool", "bash"),
        ("pre_tool", "invalid"),
        ("session_start", None),
        ("session_stop", None),
    ]


def test_a_held_call_is_thrown_out_when_denied_and_runs_as_edited_when_approved(
    opencode: OpenCode, tmp_path: Path
) -> None:
    rules(opencode.served, {"tool": "bash", "pattern": "git push", "verdict": "ask"})
    steps = [push(opencode, "one"), push(opencode, "two")]
    with ThreadPoolExecutor(1) as pool:
        running: Future[list[dict[str, Any]]] = pool.submit(drive, tmp_path, steps, **connected(opencode))
        opencode.decide(opencode.pending(), "denied", reason="No.")
        edited = {"edited": "git push --dry-run", "edited_field": "command"}
        opencode.decide(opencode.pending(), "approved", **edited)
        denied, approved = running.result(60)
    assert denied["error"].endswith("in Signalbox: No.")
    assert approved["output"]["args"] == {"command": "git push --dry-run", "description": "Push"}


def test_a_permission_that_it_asks_for_is_answered_here_but_not_a_second_time(
    opencode: OpenCode, tmp_path: Path
) -> None:
    rules(opencode.served, {"tool": "bash", "pattern": "git push", "verdict": "allow"})
    asked = {
        "id": "evt_1",
        "type": "permission.asked",
        "properties": {
            "id": "per_1",
            "sessionID": opencode.session,
            "permission": "edit",
            "patterns": ["a.txt"],
            "metadata": {"filepath": "a.txt"},
            "always": ["*"],
            "tool": {"messageID": "msg_1", "callID": "call_2"},
        },
    }
    again = asked | {"properties": asked["properties"] | {"id": "per_2", "tool": {"callID": "call_1"}}}
    let_go = drive(
        tmp_path,
        [push(opencode), {"call": "event", "input": {"event": again}}, {"call": "replies"}],
        **connected(opencode),
    )[-1]["replies"]
    assert let_go == [
        {"path": {"id": opencode.session, "permissionID": "per_2"}, "body": {"response": "once"}}
    ]
    with ThreadPoolExecutor(1) as pool:
        steps = [{"call": "event", "input": {"event": asked}}, {"call": "replies"}]
        running: Future[list[dict[str, Any]]] = pool.submit(drive, tmp_path, steps, **connected(opencode))
        opencode.decide(opencode.pending(), "denied")
        (reply,) = running.result(60)[-1]["replies"]
    assert reply == {
        "path": {"id": opencode.session, "permissionID": "per_1"},
        "body": {"response": "reject"},
    }


def test_no_call_runs_while_the_server_is_away_unless_its_person_wants_that(
    opencode: OpenCode, tmp_path: Path
) -> None:
    (held,) = drive(tmp_path, [push(opencode)], SIGNALBOX_URL=nobody())
    assert held["error"].startswith("Signalbox must decide this call, but")
    file = tmp_path / ".config" / "signalbox" / "client.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"url": nobody(), "key": "sbx_x", "agents": {"opencode": {"hold": False}}}))
    file.chmod(0o600)
    (let_go,) = drive(tmp_path, [push(opencode)])
    assert let_go["output"]["args"]["command"] == "git push"
    file.chmod(0o644)
    (broken,) = drive(tmp_path, [push(opencode)])
    assert "chmod 600" in broken["error"]


def test_the_connected_file_goes_before_variables_that_a_project_can_set(
    opencode: OpenCode, tmp_path: Path
) -> None:
    file = tmp_path / ".config" / "signalbox" / "client.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"url": nobody(), "key": "sbx_x", "agents": {}}))
    file.chmod(0o600)
    (denied,) = drive(tmp_path, [push(opencode)], **connected(opencode))
    assert denied["error"].startswith("Signalbox must decide this call, but")


def test_what_is_held_is_known_at_its_next_start_though_the_server_is_away(
    opencode: OpenCode, tmp_path: Path
) -> None:
    rules(opencode.served, {"tool": "[!a]ash|w*", "verdict": "ask", "deny_at_deadline": True})
    read = {
        "call": "tool.execute.before",
        "input": {"tool": "read", "sessionID": opencode.session, "callID": "call_2"},
        "output": {"args": {"filePath": "/home/dev/notes"}},
    }
    drive(tmp_path, [read], **connected(opencode))
    known = known_by(tmp_path, opencode.served.url)
    assert held.load(str(known), "opencode") == [["hold", "[!a]ash|w*"]]
    assert stat.S_IMODE((known / "held-opencode.json").stat().st_mode) == 0o600
    away = {"SIGNALBOX_URL": nobody(), "SIGNALBOX_KEY": KEYS["agent"]}
    shutil.copytree(known, known_by(tmp_path, away["SIGNALBOX_URL"]))
    ran, denied = drive(tmp_path, [read, push(opencode)], **away)
    assert ran["output"] == read["output"]
    assert ran["ms"] < 2_000
    assert denied["error"].startswith("Signalbox must decide this call, but")
    (known_by(tmp_path, away["SIGNALBOX_URL"]) / "held-opencode.json").write_text("[[")
    assert "error" in drive(tmp_path, [read], **away)[0]


def known_by(home: Path, url: str) -> Path:
    """Return where the hook command keeps what it knows of a server."""
    folder = Path(Settings(url, KEYS["agent"]).folder).name
    return home / ".local" / "state" / "signalbox" / folder


def test_a_key_that_is_not_valid_holds_every_call_and_without_a_connection_it_does_nothing(
    opencode: OpenCode, tmp_path: Path
) -> None:
    (refused,) = drive(tmp_path, [push(opencode)], SIGNALBOX_URL=opencode.served.url, SIGNALBOX_KEY="sbx_no")
    assert "it answered 401" in refused["error"]
    (idle,) = drive(tmp_path, [push(opencode)])
    assert idle["known"] is False
