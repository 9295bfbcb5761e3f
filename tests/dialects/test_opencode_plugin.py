"""The plugin itself, run by Node as OpenCode runs it, against the served program and against none."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from coordinator.client import launch
from coordinator.client import offline_block_list as held
from coordinator.client.connecting.connectable_agents import HOOK_FAILED, HookInvocation, fill_plugin_template
from coordinator.client.hook import BLOCKED_WITHOUT_RULES
from coordinator.client.settings import ClientSettings, write_private_file
from tests.claude_code.test_deciding import rules
from tests.dialects import opencode as recording
from tests.dialects.agent import Agent, recorded
from tests.patience import until
from tests.served import KEYS, Served, children_of

NODE = shutil.which("node")
pytestmark = [pytest.mark.served, pytest.mark.skipif(NODE is None, reason="Node is not installed")]
HERE = Path(__file__).parent
PLUGIN = Path(settings.BASE_DIR) / "static" / "plugins" / "opencode.js"


class OpenCode(Agent):
    name = "opencode"


@pytest.fixture
def opencode(served: Served, tmp_path: Path) -> OpenCode:
    connect(tmp_path, served.url)
    return OpenCode(served)


def drive(home: Path, steps: list[dict[str, Any]], **how: Any) -> list[dict[str, Any]]:
    """Run the plugin through these steps with this home; return what came of each."""
    return results(start(home, steps, **how))


def start(
    home: Path,
    steps: list[dict[str, Any]],
    *,
    wait: int = 590,
    program: Sequence[str] | None = None,
    **environment: str,
) -> subprocess.Popen[str]:
    """Start OpenCode, as far as the plugin sees it, with this home and these steps.

    `wait` is for how many seconds a call may wait, `program` what the plugin calls instead of ours.
    """
    copy = home / "plugin.mjs"
    ours = (sys.executable, "-I", "-S", launch.__file__, "--settings", str(file_of(home)))
    text = fill_plugin_template(
        PLUGIN.read_text(), "opencode", HookInvocation(tuple(program or ours), "http://signalbox.test")
    )
    copy.write_text(text.replace("const WAIT_SECONDS = 590", f"const WAIT_SECONDS = {wait}"))
    assert NODE
    process = subprocess.Popen(
        [NODE, str(HERE / "drive_plugin.mjs")],
        env={"HOME": str(home), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    process.stdin.write(json.dumps({"plugin": str(copy), "steps": steps}))
    process.stdin.close()
    process.stdin = None
    return process


def results(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Return what came of each step once it has ended."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def file_of(home: Path) -> Path:
    """Return the file that says how this home is connected."""
    return home / ".config" / "signalbox" / "client.json"


def connect(home: Path, url: str, key: str = KEYS["agent"], **agents: Any) -> None:
    """Write that file, as `signalbox connect` does."""
    remembered = {"HOME": str(home)}
    content = {"url": url, "key": key, "agents": agents, "environment": remembered}
    write_private_file(str(file_of(home)), json.dumps(content).encode())


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
    drive(tmp_path, [*steps, {"call": "dispose"}])
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
        running: Future[list[dict[str, Any]]] = pool.submit(drive, tmp_path, steps)
        opencode.decide(opencode.pending(), "denied", reason="No.")
        edited = {"edited": "git push --dry-run", "edited_field": "command"}
        opencode.decide(opencode.pending(), "approved", **edited)
        denied, approved = running.result(60)
    assert denied["error"].endswith("in Signalbox: No.")
    assert approved["output"]["args"] == {"command": "git push --dry-run", "description": "Push"}


def test_its_screen_says_where_a_waiting_call_is_decided(opencode: OpenCode, tmp_path: Path) -> None:
    rules(opencode.served, {"tool": "bash", "pattern": "git push", "verdict": "ask"})
    said = tmp_path / "said"
    steps = [{**push(opencode), "alone": True}, {"call": "shown"}, {"call": "touch", "path": str(said)}]
    process = start(tmp_path, steps)
    until(said.exists)
    opencode.decide(opencode.pending(), "approved")
    *_, pushed = results(process)
    assert pushed["shown"][0] == "Waiting for approval in Signalbox: http://signalbox.test/ui/approvals/"
    assert pushed["output"]["args"]["command"] == "git push"


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
    )[-1]["replies"]
    assert let_go == [
        {"path": {"id": opencode.session, "permissionID": "per_2"}, "body": {"response": "once"}}
    ]
    with ThreadPoolExecutor(1) as pool:
        steps = [{"call": "event", "input": {"event": asked}}, {"call": "replies"}]
        running: Future[list[dict[str, Any]]] = pool.submit(drive, tmp_path, steps)
        opencode.decide(opencode.pending(), "denied")
        (reply,) = running.result(60)[-1]["replies"]
    assert reply == {
        "path": {"id": opencode.session, "permissionID": "per_1"},
        "body": {"response": "reject"},
    }


def asking(opencode: OpenCode, call_id: str, question: str, *labels: str) -> dict[str, Any]:
    """Return the step in which OpenCode reports that its agent asks a question."""
    options = [{"label": label, "description": ""} for label in labels]
    properties = {
        "id": "que_1",
        "sessionID": opencode.session,
        "questions": [{"question": question, "header": "Ask", "options": options}],
        "tool": {"messageID": "msg_1", "callID": call_id},
    }
    event = {"id": "evt_1", "type": "question.asked", "properties": properties}
    return {"call": "event", "input": {"event": event}}


def answer(opencode: OpenCode, **form: Any) -> None:
    """Answer the waiting question on its card."""
    request_id = opencode.pending()
    approver = opencode.served.sign_in("approver")
    page = approver.get(f"/ui/approvals/{request_id}/").text
    judged = re.findall(r'<input\b[^>]*\bname="judged"[^>]*\bvalue="([^"]*)"', page)
    form |= {"ids": request_id, "judged": [html.unescape(value) for value in judged], "questions": 1}
    response = approver.post("/ui/approvals/answer/", data=form)
    assert response.status_code == 200, response.text


def test_a_question_is_answered_here_without_any_rule(opencode: OpenCode, tmp_path: Path) -> None:
    steps = [asking(opencode, "call_1", "Which colour?", "Red", "Blue"), {"call": "replies"}]
    with ThreadPoolExecutor(1) as pool:
        running: Future[list[dict[str, Any]]] = pool.submit(drive, tmp_path, steps)
        answer(opencode, **{"answer-0": "1"})
        (reply,) = running.result(60)[-1]["replies"]
    assert reply == {
        "url": "/question/{requestID}/reply",
        "path": {"requestID": "que_1"},
        "body": {"answers": [["Blue"]]},
    }


def test_a_plan_is_read_from_its_file_and_sent_back_with_what_the_person_wrote(
    opencode: OpenCode, tmp_path: Path
) -> None:
    (tmp_path / "plan.md").write_text("# Paint it")
    begins = {
        "call": "tool.execute.before",
        "input": {"tool": "plan_exit", "sessionID": opencode.session, "callID": "call_1"},
        "output": {"args": {}},
    }
    speaks = {"call": "chat.message", "input": {"sessionID": opencode.session, "agent": "plan"}}
    plan = asking(opencode, "call_1", f"Plan at {tmp_path / 'plan.md'} is complete. Build?", "Yes", "No")
    idle = {"id": "evt_2", "type": "session.idle", "properties": {"sessionID": opencode.session}}
    steps = [
        speaks,
        begins,
        plan,
        {"call": "replies"},
        {"call": "event", "input": {"event": idle}},
    ]
    with ThreadPoolExecutor(1) as pool:
        running: Future[list[dict[str, Any]]] = pool.submit(drive, tmp_path, steps)
        request_id = opencode.pending()
        assert "Paint it" in opencode.served.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
        answer(opencode, verdict="denied", reason="Sand it first.")
        rejected, feedback = running.result(60)[-1]["replies"]
    assert rejected["url"] == "/question/{requestID}/reject"
    assert (feedback["url"], feedback["body"]["agent"]) == ("/session/{id}/prompt_async", "plan")
    assert "Sand it first." in feedback["body"]["parts"][0]["text"]


def kept(home: Path) -> list[Path]:
    """Return the hooks that wait to be sent."""
    return sorted((home / ".local/state/signalbox").glob("*/spool/[0-9]*"))


def prompted(opencode: OpenCode, text: str = "Push it.", message: str = "msg_1") -> dict[str, Any]:
    """Return the step in which a person prompts it."""
    parts = [{"type": "text", "text": text}]
    output = {"message": {"id": message}, "parts": parts}
    return {"call": "chat.message", "input": {"sessionID": opencode.session}, "output": output}


def test_no_call_runs_while_the_server_is_away_unless_its_person_wants_that(
    opencode: OpenCode, tmp_path: Path
) -> None:
    connect(tmp_path, nobody())
    (held_back,) = drive(tmp_path, [push(opencode)], wait=3)
    assert "cannot be reached" in held_back["error"]
    assert BLOCKED_WITHOUT_RULES in held_back["error"]
    connect(tmp_path, nobody(), opencode={"hold": False})
    (let_go,) = drive(tmp_path, [push(opencode)])
    assert let_go["output"]["args"]["command"] == "git push"
    assert let_go["ms"] < 5_000
    file_of(tmp_path).chmod(0o644)
    (broken,) = drive(tmp_path, [push(opencode)])
    assert "chmod 600" in broken["error"]


def test_the_connected_file_goes_before_variables_that_a_project_can_set(
    opencode: OpenCode, tmp_path: Path
) -> None:
    connect(tmp_path, nobody())
    variables = {"SIGNALBOX_URL": opencode.served.url, "SIGNALBOX_KEY": KEYS["agent"]}
    (denied,) = drive(tmp_path, [push(opencode)], **variables, PYTHONPATH="/", wait=3)
    assert BLOCKED_WITHOUT_RULES in denied["error"]


def test_what_is_held_is_known_at_its_next_start_though_the_server_is_away(
    opencode: OpenCode, tmp_path: Path
) -> None:
    rules(opencode.served, {"tool": "[!a]ash|w*", "verdict": "ask", "deny_at_deadline": True})
    read = {
        "call": "tool.execute.before",
        "input": {"tool": "read", "sessionID": opencode.session, "callID": "call_2"},
        "output": {"args": {"filePath": "/home/dev/notes"}},
    }
    drive(tmp_path, [read])
    known = known_by(tmp_path, opencode.served.url)
    assert held.load_offline_block_list(str(known), "opencode") == [["hold", "[!a]ash|w*"]]
    away = nobody()
    shutil.copytree(known, known_by(tmp_path, away))
    connect(tmp_path, away)
    ran, denied = drive(tmp_path, [read, push(opencode)], wait=3)
    assert ran["output"] == read["output"]
    assert ran["ms"] < 5_000
    assert "A rule in Signalbox holds such calls for certain" in denied["error"]


def known_by(home: Path, url: str) -> Path:
    """Return where the hook command keeps what it knows of a server."""
    folder = Path(ClientSettings(url, KEYS["agent"]).server_state_folder).name
    return home / ".local" / "state" / "signalbox" / folder


def test_a_key_that_is_not_valid_holds_every_call_and_so_does_a_missing_connection(
    opencode: OpenCode, tmp_path: Path
) -> None:
    connect(tmp_path, opencode.served.url, "sbx_no")
    (refused,) = drive(tmp_path, [push(opencode)])
    assert "401" in refused["error"]
    file_of(tmp_path).unlink()
    (unconnected,) = drive(tmp_path, [push(opencode)])
    assert "run `signalbox connect`" in unconnected["error"]


def test_a_call_whose_hook_is_killed_or_is_not_there_does_not_run(opencode: OpenCode, tmp_path: Path) -> None:
    rules(opencode.served, {"tool": "bash", "pattern": "git push", "verdict": "ask"})
    process = start(tmp_path, [push(opencode)])
    opencode.pending()
    for child in children_of(process.pid):
        os.kill(child, signal.SIGKILL)
    (killed,) = results(process)
    assert killed["error"] == HOOK_FAILED
    (gone,) = drive(tmp_path, [push(opencode)], program=["/nowhere/signalbox"])
    assert gone["error"].startswith(HOOK_FAILED)
    assert "ENOENT" in gone["error"]
    (babble,) = drive(tmp_path, [push(opencode)], program=[sys.executable, "-c", "print('Go on.')"])
    assert babble["error"].startswith(HOOK_FAILED)


def test_what_could_not_be_sent_is_sent_later_in_order_and_nothing_waits_for_it(
    serve: Any, tmp_path: Path
) -> None:
    served = serve()
    connect(tmp_path, served.url)
    opencode = OpenCode(served)
    served.stop()
    steps = [prompted(opencode, "First.", "msg_1"), prompted(opencode, "Second.", "msg_2")]
    answers = drive(tmp_path, [*steps, {"call": "dispose"}])
    assert all(answer["ms"] < 1_000 for answer in answers[:2])
    until(lambda: len(kept(tmp_path)) == 3)
    served.start()
    drive(tmp_path, [prompted(opencode, "Third.", "msg_3"), {"call": "dispose"}])
    until(lambda: len(opencode.told("e.id")) == 5)
    told = [
        (kind, content and json.loads(content)[0]["text"])
        for kind, content in opencode.told("e.event_type, e.content")
    ]
    assert told == [
        ("message", "First."), ("message", "Second."), ("session_stop", None),
        ("message", "Third."), ("session_stop", None),
    ]  # fmt: skip
    assert not kept(tmp_path)


def test_its_sessions_end_with_it_though_it_is_killed(opencode: OpenCode, tmp_path: Path) -> None:
    rules(opencode.served, {"tool": "bash", "pattern": "git push", "verdict": "ask"})
    process = start(tmp_path, [prompted(opencode), push(opencode)])
    opencode.pending()
    until(lambda: opencode.told("e.id"))
    process.kill()
    process.wait()
    until(lambda: ("session_stop",) in opencode.told("e.event_type"))
    asked = "SELECT status FROM permission_requests"
    until(lambda: ("pending",) not in opencode.served.sql(asked))


def test_a_wait_ends_where_its_turn_is_stopped(opencode: OpenCode, tmp_path: Path) -> None:
    rules(opencode.served, {"tool": "bash", "pattern": "git push", "verdict": "ask"})
    idle = {"type": "session.idle", "id": "evt_9", "properties": {"sessionID": opencode.session}}
    stop = {"call": "event", "input": {"event": idle}}
    process = start(
        tmp_path, [{**push(opencode), "alone": True}, {"call": "file", "path": str(tmp_path / "asked")}, stop]
    )
    opencode.pending()
    (tmp_path / "asked").touch()
    assert [one.get("error") for one in results(process) if "error" in one] == [HOOK_FAILED]
