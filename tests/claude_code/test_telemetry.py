"""OpenTelemetry joins what hooks told, counts tokens once, and makes sessions of other agents' spans."""

from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import httpx
import pytest

from tests.claude_code.double import Claude
from tests.claude_code.test_recording import events, session
from tests.patience import PATIENCE
from tests.served import KEYS, Served, running

pytestmark = pytest.mark.served

T0 = 1_795_000_000_000_000_000
HEADERS = {"Authorization": f"Bearer {KEYS['agent']}", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def served(served_template: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(served_template, tmp_path_factory.mktemp("telemetry") / "server") as server:
        yield server


def value(plain: Any) -> dict[str, Any]:
    if isinstance(plain, bool):
        return {"boolValue": plain}
    if isinstance(plain, int):
        return {"intValue": str(plain)}
    if isinstance(plain, float):
        return {"doubleValue": plain}
    return {"stringValue": plain}


def pairs(**attributes: Any) -> list[dict[str, Any]]:
    return [{"key": name.replace("__", "."), "value": value(one)} for name, one in attributes.items()]


def log(claude: Claude, name: str, sequence: int, **attributes: Any) -> dict[str, Any]:
    shared = {"event__name": name, "event__sequence": sequence, "session__id": claude.session}
    return {
        "timeUnixNano": str(T0 + sequence),
        "body": {"stringValue": f"claude_code.{name}"},
        "attributes": pairs(**shared, **attributes),
    }


def logs(*records: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": pairs(service__name="claude-code", host__name="studio")}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": list(records)}]}]}


def post(served: Served, path: str, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(
        f"{served.url}{path}", content=content, headers={**HEADERS, **headers}, timeout=PATIENCE
    )


def tokens(served: Served, claude: Claude) -> list[tuple[Any, ...]]:
    return served.sql(
        "SELECT c.model, c.input_tokens, c.output_tokens, c.cache_read_tokens, c.cache_write_tokens"
        " FROM event_context c JOIN sessions s ON s.session_id = c.session_id"
        " WHERE s.executor_session_id = ? AND c.input_tokens IS NOT NULL ORDER BY c.event_id",
        (claude.session,),
    )


USAGE = {
    "model": "claude-opus-4-8", "input_tokens": 12, "output_tokens": "340", "cache_read_tokens": 5_000,
    "cache_creation_tokens": 70, "request_id": "req_1", "duration_ms": 900,
}  # fmt: skip


def test_logs_join_the_session_of_the_hooks_and_are_counted_once(served: Served) -> None:
    claude = Claude(served)
    claude.prompt("Fix it.")
    call = claude.call("Bash", {"command": "ls"})
    body = logs(
        log(claude, "user_prompt", 1, prompt="<REDACTED>", prompt_length=7, prompt__id=claude.turn),
        log(claude, "api_request", 2, **USAGE),
        log(claude, "tool_result", 3, tool_name="Bash", tool_use_id=call.id, success="true"),
    )
    for _ in range(2):
        answer = post(served, "/v1/logs", body)
        assert (answer.status_code, answer.json()) == (200, {})
    assert len(session(served, claude, "session_id")) == 1
    assert [event["type"] for event in sorted(events(served, claude), key=lambda one: one["type"])] == [
        "message", "model_request", "post_tool", "pre_tool",
    ]  # fmt: skip
    assert tokens(served, claude) == [("claude-opus-4-8", 12, 340, 5_000, 70)]


def test_telemetry_alone_makes_a_session_and_never_ends_one(served: Served) -> None:
    claude = Claude(served)
    post(served, "/v1/logs", logs(log(claude, "user_prompt", 1, prompt="Hello.", prompt_length=6)))
    assert session(served, claude, "status") == ["running"]
    assert events(served, claude)[0]["content"] == [{"type": "text", "text": "Hello."}]


def test_a_no_in_the_terminal_closes_the_card(served: Served) -> None:
    claude = Claude(served, wait="100")
    call = claude.new_call("Bash", {"command": "rm -r build"})
    claude.before(call)
    asking = claude.asking(call)
    while not served.sql("SELECT 1 FROM permission_requests WHERE status = 'pending'"):
        pass
    rejected = log(claude, "tool_decision", 1, tool_use_id=call.id, decision="reject", source="user_reject")
    post(served, "/v1/logs", logs(rejected))
    assert asking.result() == {}
    assert events(served, claude)[0]["error"] == "Rejected in the terminal (user_reject)."


def span(name: str, number: int, **attributes: Any) -> dict[str, Any]:
    return {
        "traceId": "5B8EFFF798038103D269B633813FC60C",
        "spanId": f"{number:016x}",
        "name": name,
        "startTimeUnixNano": str(T0 + number * 10**9),
        "endTimeUnixNano": str(T0 + number * 10**9 + 250_000_000),
        "attributes": pairs(**attributes),
    }


def spans(*found: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": pairs(service__name="helpdesk-bot")}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": list(found)}]}]}


def test_spans_of_other_agents_become_a_session(served: Served) -> None:
    claude = Claude(served)
    chat = span(
        "chat gpt-x",
        1,
        gen_ai__operation__name="chat",
        gen_ai__conversation__id=claude.session,
        gen_ai__request__model="gpt-x",
        gen_ai__usage__input_tokens=1_000,
        gen_ai__usage__cache_read__input_tokens=600,
        gen_ai__usage__output_tokens=50,
        gen_ai__input__messages=json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": "Where is my parcel?"}]}]
        ),
        gen_ai__output__messages=json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": "On its way."}]}]
        ),
    )
    tool = span(
        "execute_tool lookup",
        2,
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name="lookup",
        gen_ai__tool__call__id="call_1",
        gen_ai__tool__call__arguments='{"parcel": 7}',
        gen_ai__tool__call__result='{"state": "moving"}',
    )
    plain = span("GET /health", 3, http__method="GET")
    for _ in range(2):
        assert post(served, "/v1/traces", spans(chat, tool, plain)).json() == {}
    found = events(served, claude)
    assert [event["type"] for event in found] == [
        "message", "message", "model_request", "pre_tool", "post_tool",
    ]  # fmt: skip
    assert (found[3]["input"], found[4]["output"], found[4]["duration_ms"]) == (
        {"parcel": 7},
        {"state": "moving"},
        250,
    )
    assert tokens(served, claude) == [("gpt-x", 400, 50, 600, None)]
    assert session(served, claude, "executor_profile") == ["helpdesk-bot"]


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 2**14
    size = (
        bytes([len(content)]) if len(content) < 128 else bytes([len(content) & 127 | 128, len(content) >> 7])
    )
    return bytes([number << 3 | 2]) + size + content


def pair(key: str, any_value: bytes) -> bytes:
    return field(1, key.encode()) + field(2, any_value)


def test_protobuf_says_the_same_as_json(served: Served) -> None:
    claude = Claude(served)
    record = b"\x09" + struct.pack("<Q", T0)
    for key, text in (
        ("event.name", "api_request"),
        ("session.id", claude.session),
        ("model", "claude-opus-4-8"),
    ):
        record += field(6, pair(key, field(1, text.encode())))
    record += field(6, pair("input_tokens", b"\x18\xac\x02"))  # 300
    record += field(6, pair("output_tokens", b"\x21" + struct.pack("<d", 9.0)))
    request = field(1, field(2, field(2, record)))
    for _ in range(2):
        answer = post(served, "/v1/logs", request, **{"Content-Type": "application/x-protobuf"})
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"] == "application/x-protobuf"
    assert tokens(served, claude) == [("claude-opus-4-8", 300, 9, None, None)]


def test_gzip_is_taken_and_an_empty_request_succeeds(served: Served) -> None:
    claude = Claude(served)
    packed = gzip.compress(json.dumps(logs(log(claude, "api_request", 1, **USAGE))).encode())
    assert post(served, "/v1/logs", packed, **{"Content-Encoding": "gzip"}).json() == {}
    assert len(tokens(served, claude)) == 1
    for path in ("/v1/logs", "/v1/traces", "/v1/metrics"):
        assert post(served, path, {}).json() == {}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b"\xff\xff", {"Content-Type": "application/x-protobuf"}, 400),
        (b"x", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Authorization": "Bearer sbx_wrong"}, 401),
        (b"\x1f\x8b", {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(b" " * 21_000_000), {"Content-Encoding": "gzip"}, 413),
    ],
)
def test_refusals_are_told_in_kind(served: Served, body: bytes, headers: dict[str, str], status: int) -> None:
    answer = post(served, "/v1/logs", body, **headers)
    assert answer.status_code == status
    if answer.headers["content-type"] == "application/json":
        assert answer.json()["message"]
    else:
        assert answer.content[:1] == b"\x12"


@pytest.mark.parametrize(
    "odd",
    [
        {"resourceLogs": [None, 3, {"scopeLogs": [{"logRecords": [None, {"attributes": [{"key": 3}, 7]}]}]}]},
        {"resourceLogs": {"x": 1}},
        {
            "resourceLogs": [
                {"resource": [], "scopeLogs": [{"logRecords": [{"timeUnixNano": "x", "body": []}]}]}
            ]
        },
    ],
)
def test_odd_shapes_are_left_out_and_never_an_error(served: Served, odd: Any) -> None:
    assert post(served, "/v1/logs", odd).status_code == 200
