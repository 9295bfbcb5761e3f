"""No agent and no server talks past `signalbox mcp SERVER -- COMMAND`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.client import mcp_guard, mcp_lines
from coordinator.mcp.protocol import messages
from tests.client.test_mcp_guard import Agent, Answer, Signalbox
from tests.patience import PATIENCE, until

pytestmark = pytest.mark.one_engine
# Answers each message, and each thing that Python or Node take for a line, with what it got.
PARROT = """
import json, sys
for raw in sys.stdin.buffer:
    for line in raw.decode().splitlines():
        message = json.loads(line)
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"line": line}}), flush=True)
        else:
            told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"line": line}}
            print(json.dumps(told), flush=True)
"""
READ = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "file:///a"}}


@pytest.fixture
def box() -> Iterator[Signalbox]:
    found = Signalbox()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def parrot(box: Signalbox) -> Iterator[Agent]:
    found = Agent(box.url, "s", "--", sys.executable, "-c", PARROT)
    yield found
    found.process.kill()
    found.process.wait()


def line_of(answer: dict[str, Any]) -> Any:
    return json.loads(answer["result"]["line"])


@pytest.mark.parametrize(
    "method", ["x/any", "tools/call ", "Tools/call", "tools\\u002fcall\\u200b", "resources/Read", ""]
)
def test_unknown_methods_reach_no_server(parrot: Agent, box: Signalbox, method: str) -> None:
    parrot.raw(f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"echo"}}}}')
    assert parrot.told(1)["error"]["code"] == mcp_lines.METHOD_NOT_FOUND
    assert not box.heard


def test_unknown_notifications_reach_no_server(parrot: Agent) -> None:
    parrot.send("notifications/tools/call", name="echo")
    parrot.send("notifications/initialized", evil="EVIL")
    message = json.loads(parrot.lines.get(timeout=PATIENCE))
    assert json.loads(message["params"]["line"])["method"] == "notifications/initialized"
    assert "EVIL" not in str(message)


def test_a_read_is_asked_about_before_it_is_sent(parrot: Agent, box: Signalbox) -> None:
    parrot.raw(json.dumps(READ))
    assert line_of(parrot.told(1)) == READ
    (asked,) = box.asked()
    expected = {
        "server": "s",
        "tool": "resources/read",
        "method": "resources/read",
        "arguments": '{"uri": "file:///a"}',
    }
    assert {name: asked[name] for name in expected} == expected


@pytest.mark.parametrize(
    "answer",
    [(200, {"decision": "deny", "reason": "No."}), (200, {"decision": "wait"}), (500, {}), (404, {})],
)
def test_a_read_that_is_not_allowed_is_not_sent(parrot: Agent, box: Signalbox, answer: Answer) -> None:
    box.answers = lambda _asked: answer
    parrot.raw(json.dumps(READ))
    assert parrot.told(1)["error"]["code"] == mcp_lines.DENIED
    parrot.send("prompts/list", 2)
    assert parrot.told(2)["result"] == {"prompts": []}


def test_the_answer_to_a_task_s_server_is_sent_only_where_it_is_allowed(
    parrot: Agent, box: Signalbox
) -> None:
    update = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tasks/update",
        "params": {"taskId": "t", "inputResponses": {}},
    }
    parrot.raw(json.dumps(update))
    assert line_of(parrot.told(1)) == update
    assert [asked["method"] for asked in box.asked()] == ["tasks/update"]
    box.answers = lambda _asked: (200, {"decision": "deny", "reason": "A brake is on."})
    parrot.raw(json.dumps(update | {"id": 2}))
    assert parrot.told(2)["error"]["message"] == "A brake is on."
    parrot.raw(json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tasks/get", "params": {"taskId": "t"}}))
    assert line_of(parrot.told(3))["method"] == "tasks/get"
    assert len(box.asked()) == 2


def test_members_that_nobody_judged_reach_no_server(parrot: Agent, box: Signalbox) -> None:
    parrot.raw(
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","evil":1,"params":{"name":"echo","evil":1,'
        '"arguments":{ "a":1.50 },"_meta":{"evil":1,"progressToken":7}}}'
    )
    assert parrot.told(1)["result"]["line"] == (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{ "a":1.50 },'
        '"_meta":{"progressToken":7}}}'
    )
    assert box.asked()[0]["arguments"] == '{ "a":1.50 }'


@pytest.mark.parametrize("sign", mcp_lines.LINE_ENDS)
def test_no_text_ends_a_line(parrot: Agent, box: Signalbox, sign: str) -> None:
    hidden = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "echo"}})
    token = json.dumps(f"a{sign}{hidden}{sign}b", ensure_ascii=False)
    parrot.raw(f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"_meta":{{"progressToken":{token}}}}}}}')
    assert line_of(parrot.told(1))["params"]["_meta"]["progressToken"] == json.loads(token)


def test_a_second_call_under_the_same_id_is_refused(parrot: Agent, box: Signalbox) -> None:
    waits = threading.Event()

    def decide(_asked: dict[str, Any]) -> Answer:
        waits.wait(PATIENCE)
        return 200, {"decision": "allow", "call_id": "c"}

    box.answers = decide
    parrot.send("tools/call", 1, name="echo", arguments={"a": 1})
    until(box.asked)
    parrot.raw('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":2}}}')
    assert parrot.told(1)["error"]["message"] == "Another call has this id."
    waits.set()
    assert line_of(parrot.told(1))["params"]["arguments"] == {"a": 1}


# Answers, before it got it, the call of id 1; then each message.
HASTY = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    for number in (1, 1.0, message["id"]):
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": {"line": line}}), flush=True)
    print('{"jsonrpc":"2.0","id":9,"result":{"a":1},"id":8}', flush=True)
    print('[{"jsonrpc":"2.0","id":9,"result":{"a":1}}]', flush=True)
"""


def test_a_server_answers_no_call_that_it_did_not_get(box: Signalbox) -> None:
    waits = threading.Event()

    def decide(_asked: dict[str, Any]) -> Answer:
        waits.wait(PATIENCE)
        return 200, {"decision": "allow", "call_id": "c"}

    box.answers = decide
    agent = Agent(box.url, "s", "--", sys.executable, "-c", HASTY)
    try:
        agent.send("tools/call", 1, name="echo", arguments={})
        until(box.asked)
        agent.send("ping", 2)
        first = json.loads(agent.lines.get(timeout=PATIENCE))
        assert first["id"] == 2
        agent.send("notifications/cancelled", requestId=1)  # it is still the guard's to cancel
        until(lambda: [path for path, _ in box.heard if path.endswith("/cancel")])
        waits.set()
        agent.send("ping", 3)
        heard = [agent.lines.get(timeout=PATIENCE)]
        while json.loads(heard[-1])["id"] != 3:
            heard.append(agent.lines.get(timeout=PATIENCE))
        assert not any(b"tools/call" in line or b'"a"' in line for line in heard)
    finally:
        agent.process.kill()
        agent.process.wait()


def test_the_server_gets_the_key_in_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SIGNALBOX_KEY", "sbx_secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer sbx_secret")
    monkeypatch.setenv("MINE", "theirs")
    found = mcp_guard.build_server_environment()
    assert found["MINE"] == "theirs"
    assert "sbx_secret" not in str(found)


def test_a_server_that_stays_after_its_input_is_ended(box: Signalbox) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "sys.stdin.read()\n"
        'print(\'{"jsonrpc":"2.0","method":"notifications/message"}\', flush=True)\n'
        "time.sleep(600)\n"
    )
    agent = Agent(box.url, "s", "--", sys.executable, "-c", script)
    assert agent.process.stdin is not None
    agent.process.stdin.close()
    assert agent.lines.get(timeout=PATIENCE)
    assert agent.process.wait(PATIENCE) == 128 + 9


def test_a_line_without_an_end_fills_no_memory(box: Signalbox) -> None:
    script = "import sys\nwhile True: sys.stdout.write('x' * 1_000_000)"
    agent = Agent(box.url, "s", "--", sys.executable, "-c", script)
    try:
        assert agent.process.wait(PATIENCE) == 128 + 9
    except subprocess.TimeoutExpired:
        agent.process.kill()
        raise


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","q":1,"params":{"name":"a","arguments":{"x":[1,{"y":2}]},"z":3}}',
        b'{ "jsonrpc" : "2.0" ,"id":"a\\u0022b" , "method":"prompts/get","params":{"_meta":{"q":1,"progressToken":1}}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":{"b":[]}},"params":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","task":{"ttl":5,"x":1},"_meta":3}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"\xc3\xa9","q":1}}',
    ],
)
def test_messages_are_restricted_as_the_gateway_does(line: bytes) -> None:
    restricted = mcp_lines.drop_unknown_message_members(line, mcp_lines.parse_mcp_line(line))
    assert json.loads(restricted) == messages.parse_mcp_message(line).value
    assert (
        mcp_lines.drop_unknown_message_members(restricted, mcp_lines.parse_mcp_line(restricted)) == restricted
    )


def test_what_else_goes_along_with_a_call_reaches_no_server() -> None:
    along = {"progressToken": "p", "claudecode/toolUseId": "t", "q": {"hidden": 1}}
    params = {"name": "a", "arguments": {"x": 1}, "_meta": along, "z": 3}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params, "q": 1}).encode()
    expected = {"name": "a", "arguments": {"x": 1}, "_meta": {"progressToken": "p"}}
    for passed in (
        messages.parse_mcp_message(line).value,
        json.loads(mcp_lines.drop_unknown_message_members(line, mcp_lines.parse_mcp_line(line))),
    ):
        assert passed == {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": expected}


def test_a_response_passes_as_a_response_alone() -> None:
    response = {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}
    line = json.dumps(response | {"params": {"name": "run"}, "q": 1}).encode()
    assert messages.parse_mcp_message(line).value == response
    assert (
        json.loads(mcp_lines.drop_unknown_message_members(line, mcp_lines.parse_mcp_line(line))) == response
    )


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_cancelled_call_does_not_begin(is_cancelled: bool) -> None:
    call = mcp_guard.LocalServerCall("s", "echo", {}, b'{"params":{}}', None)
    if is_cancelled:
        call.cancel_permission_wait()
    assert mcp_guard.McpGuard("s", ["none"])._mark_call_begun_unless_cancelled(call) is not is_cancelled
    assert (call.began is None) is is_cancelled
