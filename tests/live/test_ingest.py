from __future__ import annotations

import gzip
import json
import sqlite3
import time
from typing import Any

import pytest

from tests.live.connections import connect, message, post
from tests.served import Served, postgres_url

pytestmark = pytest.mark.served

LIMIT = 20 * 1024 * 1024


def stored(served: Served, session_id: str) -> list[dict[str, Any]]:
    """Return the session's events as the API tells them."""
    answer = served.client().get(f"/sessions/{session_id}/events", params={"limit": 1000})
    return list(answer.json()["events"])


def test_an_event_is_answered_as_recorded_and_has_its_context(shared: Served, session_id: str) -> None:
    status, answer = post(connect(shared), f"/sessions/{session_id}/events", message(session_id, "hello"))
    assert (status, answer) == (201, {"ok": True})
    rows = shared.sql(
        "SELECT session_id, instant_us, source FROM event_context WHERE session_id = ?", (session_id,)
    )
    assert rows == [(session_id, 1772359200000000, "executor")]


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b"not json", 422, [{"type": "json_invalid", "loc": ["body", 0], "msg": "JSON decode error", "input": {},
                             "ctx": {"error": "Expecting value"}}]),
        (b'{"session_id": "x"}', 422, [
            {"type": "missing", "loc": ["body", "event_type"], "msg": "Field required", "input": {"session_id": "x"}},
            {"type": "missing", "loc": ["body", "timestamp"], "msg": "Field required", "input": {"session_id": "x"}},
        ]),
        (b'{"event_type": "message", "session_id": "other", "timestamp": "t"}', 400,
         "Event session_id must match URL session_id"),
    ],
)  # fmt: skip
def test_refusals_are_those_recorded(
    shared: Served, session_id: str, body: bytes, status: int, detail: Any
) -> None:
    assert post(connect(shared), f"/sessions/{session_id}/events", body) == (status, {"detail": detail})


def test_event_of_an_unknown_session_is_not_found(shared: Served) -> None:
    answer = post(connect(shared), "/sessions/ses_none/events", message("ses_none", "hello"))
    assert answer == (404, {"detail": "Session not found"})


def odd(session_id: str, **fields: Any) -> bytes:
    """Return the JSON of an event with odd fields; bytes among them are taken as JSON already."""
    whole = {"event_type": "post_tool", "session_id": session_id, "timestamp": "t"} | fields
    parts = (
        f"{json.dumps(k)}:{v.decode() if isinstance(v, bytes) else json.dumps(v)}" for k, v in whole.items()
    )
    return ("{" + ",".join(parts) + "}").encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"error": "a\x00b"},
        {"event_type": "\x00"},
        {"tool_output": b'"\\ud800"'},
        {"tool_output": b'{"\\udfff": 1}'},
        {"tool_output": b"1e400"},
        {"tool_output": b"1" * 5000},
        {"tool_output": b"NaN"},
        {"tool_output": b"[" * 101 + b"]" * 101},
        {"tool_output": b"[" * 100_000 + b"]" * 100_000},
        {"tool_input": [1]},
        {"content": "text"},
        {"content": [1]},
        {"exit_code": "many"},
        {"exit_code": 2**63},
        {"timestamp": 5},
        {"role": {}},
    ],
    ids=" ".join,
)
def test_what_cannot_be_kept_is_a_clear_422(shared: Served, session_id: str, fields: dict[str, Any]) -> None:
    status, answer = post(connect(shared), f"/sessions/{session_id}/events", odd(session_id, **fields))
    assert status == 422, answer
    assert all({"type", "loc", "msg", "input"} <= set(fault) for fault in answer["detail"])
    assert stored(shared, session_id) == []


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"tool_output": {"text": "nul \x00 in a value"}}, {"tool_output": {"text": "nul \x00 in a value"}}),
        ({"tool_output": []}, {"tool_output": []}),
        ({"tool_output": 0}, {"tool_output": 0}),
        ({"tool_output": False}, {"tool_output": False}),
        ({"tool_output": ""}, {"tool_output": ""}),
        ({"tool_input": {}}, {"tool_input": {}}),
        ({"tool_output": 2**64 + 1}, {"tool_output": 2**64 + 1}),
        ({"exit_code": "5"}, {"exit_code": 5}),
        ({"exit_code": -(2**63)}, {"exit_code": -(2**63)}),
        ({"error": "\u2028 \U0001f600 \ufffe"}, {"error": "\u2028 \U0001f600 \ufffe"}),
        ({"timestamp": "yesterday, about noon"}, {"timestamp": "yesterday, about noon"}),
        ({"foo": {"bar": 1}}, {"event_type": "post_tool"}),
    ],
    ids=str,
)
def test_odd_values_are_stored_faithfully(
    shared: Served, session_id: str, sent: dict[str, Any], kept: dict[str, Any]
) -> None:
    status, answer = post(connect(shared), f"/sessions/{session_id}/events", odd(session_id, **sent))
    assert status == 201, answer
    (event,) = stored(shared, session_id)
    assert {name: event[name] for name in kept} == kept


def test_five_megabytes_of_output_are_stored_whole(shared: Served, session_id: str) -> None:
    output = "0123456789abcde\n" * (5 * 65536)
    event = {"event_type": "post_tool", "session_id": session_id, "timestamp": "t", "tool_output": output}
    assert post(connect(shared), f"/sessions/{session_id}/events", event)[0] == 201
    assert [event["tool_output"] for event in stored(shared, session_id)] == [output]


def test_a_body_over_the_limit_is_refused_before_it_is_sent(shared: Served, session_id: str) -> None:
    connection = connect(shared)
    connection.putrequest("POST", f"/sessions/{session_id}/events")
    connection.putheader("Content-Length", str(LIMIT + 1))
    for name, value in {"Authorization": "Bearer sbx_served-test-key-all"}.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413


def lines(*events: Any) -> bytes:
    """Return events as NDJSON."""
    return b"\n".join(event if isinstance(event, bytes) else json.dumps(event).encode() for event in events)


@pytest.mark.parametrize("form", ["array", "ndjson"])
def test_a_bad_item_of_a_batch_never_spoils_the_good_ones(shared: Served, session_id: str, form: str) -> None:
    items = [
        message(session_id, "one"), {"session_id": session_id}, message("ses_none", "lost"),
        message(session_id, "two"),
    ]  # fmt: skip
    body, kind = (json.dumps(items).encode(), "application/json")
    if form == "ndjson":
        body, kind = lines(*items), "application/x-ndjson"
    status, answer = post(connect(shared), "/api/events", body, Content_Type=kind)
    assert (status, answer["accepted"], answer["rejected"]) == (200, 2, 2)
    assert [result["status"] for result in answer["results"]] == [201, 422, 404, 201]
    assert answer["results"][1]["detail"][0]["loc"] == ["body", 1, "event_type"]
    assert [event["id"] for event in stored(shared, session_id)] == [
        answer["results"][0]["id"],
        answer["results"][3]["id"],
    ]


def test_a_broken_line_is_one_refusal_and_a_broken_array_is_the_whole(
    shared: Served, session_id: str
) -> None:
    body = lines(message(session_id, "one"), b'{"half":')
    status, answer = post(connect(shared), "/api/events", body, Content_Type="application/x-ndjson")
    assert [result["status"] for result in answer["results"]] == [201, 422]
    status, answer = post(connect(shared), "/api/events", b'[{"half":', Content_Type="application/json")
    assert (status, answer["detail"][0]["type"]) == (422, "json_invalid")


def test_a_resend_with_the_same_key_writes_nothing_and_answers_the_same(
    shared: Served, session_id: str
) -> None:
    body = lines(message(session_id, "one"), message(session_id, "two"))
    answers = [
        post(
            connect(shared, to=pid),
            "/api/events",
            body,
            Idempotency_Key="again",
            Content_Type="application/x-ndjson",
        )
        for pid in (*shared.worker_pids(), *shared.worker_pids())
    ]
    assert answers[0][1]["accepted"] == 2
    assert all(answer == answers[0] for answer in answers)
    assert len(stored(shared, session_id)) == 2
    changed = post(connect(shared), "/api/events", body + b"\n" + body, Idempotency_Key="again")
    assert changed[0] == 409


def test_a_resent_single_event_is_there_once(shared: Served, session_id: str) -> None:
    for _ in range(3):
        answer = post(
            connect(shared), f"/sessions/{session_id}/events", message(session_id, "x"), Idempotency_Key="k1"
        )
        assert answer == (201, {"ok": True})
    assert len(stored(shared, session_id)) == 1


def test_gzip_is_accepted_and_a_bomb_is_not(shared: Served, session_id: str) -> None:
    packed = gzip.compress(lines(message(session_id, "packed")))
    assert post(connect(shared), "/api/events", packed, Content_Encoding="gzip")[1]["accepted"] == 1
    bomb = gzip.compress(b"[" + b" " * (LIMIT + 1) + b"]")
    assert post(connect(shared), "/api/events", bomb, Content_Encoding="gzip")[0] == 413
    assert post(connect(shared), "/api/events", packed[:-9], Content_Encoding="gzip")[0] == 400
    assert post(connect(shared), "/api/events", packed, Content_Encoding="br")[0] == 415


def test_more_than_ten_thousand_events_are_too_many(shared: Served, session_id: str) -> None:
    status, answer = post(connect(shared), "/api/events", b"[" + b",".join([b"{}"] * 10_001) + b"]")
    assert (status, answer) == (413, {"detail": "A batch may hold at most 10000 events."})


def test_ten_thousand_events_go_in_at_once_and_in_order(shared: Served, session_id: str) -> None:
    body = lines(*(message(session_id, str(n)) for n in range(10_000)))
    status, answer = post(connect(shared), "/api/events", gzip.compress(body), Content_Encoding="gzip")
    assert (status, answer["accepted"]) == (200, 10_000)
    ids = [result["id"] for result in answer["results"]]
    assert ids == sorted(ids)
    (counted,) = shared.sql("SELECT count(*) FROM event_context WHERE session_id = ?", (session_id,))
    assert counted == (10_000,)


@pytest.mark.skipif(postgres_url() is not None, reason="SQLite's one write lock")
def test_a_locked_database_is_503_within_four_seconds_and_then_all_is_well(
    shared: Served, session_id: str
) -> None:
    connections = [connect(shared, to=pid) for pid in shared.all_worker_pids()]
    path = f"/sessions/{session_id}/events"
    other = sqlite3.connect(shared.folder / "signalbox.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for connection in connections:
        began = time.monotonic()
        connection.request(
            "POST", path, json.dumps(message(session_id, "x")), {"X-API-Key": "sbx_served-test-key-all"}
        )
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        answer.read()
        assert time.monotonic() - began < 4
    other.execute("ROLLBACK")
    other.close()
    for connection in connections:
        assert post(connection, path, message(session_id, "after"))[0] == 201
    assert len(stored(shared, session_id)) == 2, "what was refused must not appear"
