"""A few kilobytes that become very much: refused by what they become, before they become it."""

from __future__ import annotations

import contextlib
import gzip
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.dialects import otlp_wire
from coordinator.errors import BadRequest
from coordinator.lib.body_limits import EVENTS
from tests.live.connections import bearer, connect, make_session, post
from tests.served import Served

MIB = 1024 * 1024


def field(number: int, content: bytes) -> bytes:
    size, length = len(content), b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def records(number: int, of: bytes) -> bytes:
    return b'{"resourceLogs":[' + (of + b",") * (number - 1) + of + b"]}"


def lists() -> bytes:
    return records(6 * MIB, b"[]")


def hook() -> bytes:
    head = b'{"session_id":"b","hook_event_name":"PreToolUse","tool_name":"x","cwd":"/","tool_input":{"a":'
    return head + lists() + b"}}"


def event() -> bytes:
    return b'[{"event_type":"x","session_id":"ses_1","timestamp":"t","tool_input":{"a":' + lists() + b"}}]"


def empty_records() -> bytes:
    return field(1, field(2, b"\x12\x00" * (4 * MIB)))


def sessions() -> bytes:
    return b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[%s]}]}]}' % b",".join(
        b'{"eventName":"user_prompt","attributes":[{"key":"session.id","value":{"stringValue":"s%d"}}]}' % n
        for n in range(2_000)
    )


JSON, PROTOBUF = "application/json", "application/x-protobuf"
BOMBS = {
    "lists in telemetry": ("/v1/logs", lists, JSON),
    "objects in telemetry": ("/v1/logs", lambda: records(2 * MIB, b'{"a":{}}'), JSON),
    "a hook": ("/hooks/claude-code", hook, JSON),
    "an event": ("/api/events", event, JSON),
    "empty records": ("/v1/logs", empty_records, PROTOBUF),
    "empty spans": ("/v1/traces", empty_records, PROTOBUF),
    "empty metrics": ("/v1/metrics", empty_records, PROTOBUF),
    "sessions": ("/v1/logs", sessions, JSON),
}


def processor_time(served: Served) -> float:
    ticks = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        for pid in served.worker_pids()
    ]
    return sum(int(one) for both in ticks for one in both) / 100


def memory(served: Served) -> int:
    found = [
        Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0] for pid in served.worker_pids()
    ]
    return max(map(int, found)) // 1024


@pytest.mark.served
@pytest.mark.parametrize(("path", "body", "kind"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_and_costs_little(
    one_server: Served, path: str, body: Callable[[], bytes], kind: str
) -> None:
    packed = gzip.compress(body(), 9)
    before, used = memory(one_server), processor_time(one_server)
    for _ in range(3):
        status, _ = post_packed(one_server, path, packed, kind)
        assert status == 413
    assert memory(one_server) - before < 150
    assert processor_time(one_server) - used < 3


def post_packed(served: Served, path: str, packed: bytes, kind: str) -> tuple[int, bytes]:
    connection = connect(served)
    headers = {**bearer(), "Content-Type": kind, "Content-Encoding": "gzip"}
    connection.request("POST", path, packed, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.served
def test_a_full_batch_of_large_texts_is_no_bomb(one_server: Served) -> None:
    make_session(one_server, "ses_full")
    code = "def f(a): return {'a': [a, {}]}  # \"quoted\"\n" * 40
    event = {"event_type": "note", "session_id": "ses_full", "timestamp": "t", "tool_input": {"code": code}}
    status, answer = post(connect(one_server), "/api/events", [event] * 9_000)
    assert (status, answer["accepted"]) == (200, 9_000)


def test_a_large_export_of_texts_is_no_bomb() -> None:
    text = b"def f(x): return 2*Z\n\n" * 10_000  # holds many a byte that a message could begin with
    body = field(1, field(2, b"".join(field(2, field(5, field(1, text))) for _ in range(80))))
    most = EVENTS.key.becomes
    began = time.thread_time()
    assert otlp_wire.estimate_decoded_bytes("logs", body, most) < most
    assert (
        len(
            otlp_wire.decode_otlp_protobuf_as_json("logs", body)["resourceLogs"][0]["scopeLogs"][0][
                "logRecords"
            ]
        )
        == 80
    )
    assert time.thread_time() - began < 2


@pytest.mark.parametrize("levels", [50, 1_000, 20_000])
def test_values_in_values_are_refused_when_they_are_too_deep(levels: int) -> None:
    value = b"\x0a\x01x"
    for _ in range(levels):
        value = field(5, field(1, value))
        if len(value) > 500_000:
            break
    body = field(1, field(2, field(2, field(5, value))))
    with pytest.raises(BadRequest):
        otlp_wire.decode_otlp_protobuf_as_json("logs", body)


BROKEN = {
    "bytes": b"\xff\xff",
    "groups": b"\x0b" * 1_000,
    "a length beyond all": b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    "a number without end": b"\x08" + b"\x80" * 1_000 + b"\x01",
    "a length beyond the message": b"\x0a\x05\x12\x09",
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
def test_what_is_no_protobuf_is_refused_and_looking_at_it_raises_nothing_else(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        otlp_wire.decode_otlp_protobuf_as_json("logs", raw)
    with contextlib.suppress(BadRequest):
        otlp_wire.estimate_decoded_bytes("logs", raw + b"\x0a" * 10, 0)
