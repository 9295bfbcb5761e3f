from __future__ import annotations

import pytest

from tests.live.connections import Stream, bearer, connect, message, post, text_of
from tests.served import Served

pytestmark = pytest.mark.served

SESSION_COLUMNS = [
    "session_id", "status", "created_at", "project_dir", "agent_name", "last_resumed_at", "parent_session_id",
    "executor_session_id", "executor_profile", "hostname",
]  # fmt: skip
EVENT_FIELDS = [
    "event_type", "session_id", "timestamp", "tool_name", "tool_input", "tool_output", "error", "exit_code",
    "reason", "role", "content",
]  # fmt: skip


def test_stream_opens_with_the_sessions_as_recorded(shared: Served, session_id: str) -> None:
    stream = Stream(shared, f"/sse/sessions?session_id={session_id}")
    init = stream.wait(lambda frames: frames and frames[0])
    assert init.event == "init"
    assert [list(session) for session in init.data["sessions"]] == [SESSION_COLUMNS]
    assert stream.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert stream.headers["Cache-Control"] == "no-cache, no-store"
    assert stream.headers["X-Accel-Buffering"] == "no"
    stream.close()


def test_event_posted_to_one_worker_reaches_streams_on_both(shared: Served, session_id: str) -> None:
    one, other = shared.all_worker_pids()
    streams = [Stream(shared, f"/sse/sessions?session_id={session_id}", to=pid) for pid in (one, other)]
    assert {stream.worker for stream in streams} == {one, other}
    for number, pid in enumerate((one, other) * 5):
        status, _ = post(
            connect(shared, to=pid), f"/sessions/{session_id}/events", message(session_id, str(number))
        )
        assert status == 201
    for stream in streams:
        stream.wait(lambda frames: sum(frame.event == "event" for frame in frames) >= 10)
        assert [text_of(event) for event in stream.events()] == [str(number) for number in range(10)]
        assert list(stream.events()[0]) == [*EVENT_FIELDS, "result_text", "result_data"]
        stream.close()


def test_rows_written_by_another_program_reach_a_stream_in_order(shared: Served, session_id: str) -> None:
    stream = Stream(shared, f"/sse/sessions?session_id={session_id}&include_init=false")
    for number in range(5):
        shared.sql(
            "INSERT INTO events (session_id, event_type, timestamp, reason) VALUES (?, 'note', 'now', ?)",
            (session_id, str(number)),
        )
    shared.sql("UPDATE sessions SET status = 'finished' WHERE session_id = ?", (session_id,))
    shared.sql("DELETE FROM sessions WHERE session_id = ?", (session_id,))
    stream.wait(lambda frames: frames and frames[-1].event == "session_deleted")
    assert [event["reason"] for event in stream.events()] == sorted(e["reason"] for e in stream.events())
    assert stream.frames[-1].data == {"session_id": session_id, "runs_deleted": 0}
    stream.close()


def test_last_event_id_replays_exactly_what_was_missed(shared: Served, session_id: str) -> None:
    path = f"/sessions/{session_id}/events"
    connection = connect(shared)
    post(connection, path, message(session_id, "seen"))
    before = Stream(shared, f"/sse/sessions?session_id={session_id}")
    before.wait(lambda frames: frames)
    post(connection, path, message(session_id, "heard"))
    before.wait(
        lambda frames: [f for f in frames if f.event == "event" and text_of(f.data["data"]) == "heard"]
    )
    before.close()
    for number in range(3):
        post(connection, path, message(session_id, f"missed {number}"))
    for pid in shared.worker_pids():
        after = Stream(shared, f"/sse/sessions?session_id={session_id}", to=pid, Last_Event_ID=before.last_id)
        after.wait(lambda frames: len(frames) >= 3)
        assert [text_of(event) for event in after.events()] == ["missed 0", "missed 1", "missed 2"]
        assert [frame.event for frame in after.frames] == ["event"] * 3
        after.close()


@pytest.mark.parametrize("foreign", ["1795224597406-ini-001", "nonsense", "999999999999999999999"])
def test_an_id_that_is_not_kept_gets_one_reset_and_the_present(
    shared: Served, session_id: str, foreign: str
) -> None:
    stream = Stream(shared, f"/sse/sessions?session_id={session_id}", Last_Event_ID=foreign)
    stream.wait(lambda frames: len(frames) >= 2)
    assert [frame.event for frame in stream.frames[:2]] == ["reset", "init"]
    stream.close()


def test_key_in_the_query_opens_a_stream_and_nothing_else(shared: Served) -> None:
    key = bearer("read")["Authorization"].removeprefix("Bearer ")
    connection = connect(shared)
    connection.request("GET", f"/sse/sessions?api_key={key}&include_init=false")
    assert connection.getresponse().status == 200
    for path in ("/sessions", "/runner/runs", "/ui/live/"):
        connection = connect(shared)
        connection.request("GET", f"{path}?api_key={key}&runner_id=x&topics=sessions")
        assert connection.getresponse().status == 401
    assert key not in shared.output()


def test_stream_without_a_key_is_refused(shared: Served) -> None:
    connection = connect(shared)
    connection.request("GET", "/sse/sessions")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_revoked_key_loses_its_open_streams_and_every_worker_refuses_it(shared: Served) -> None:
    streams = [Stream(shared, to=pid, **bearer("read")) for pid in shared.all_worker_pids()]
    for stream in streams:
        stream.wait(lambda frames: frames)
    shared.sql("UPDATE api_keys SET revoked_at = '2026-03-01T00:00:00.000000+00:00' WHERE name = 'test-read'")
    try:
        for stream in streams:
            assert stream.ended.wait(60), "the stream of a revoked key stays open"
        for pid in shared.worker_pids():
            refused = Stream(shared, to=pid, **bearer("read"))
            assert refused.status == 401
    finally:
        shared.sql("UPDATE api_keys SET revoked_at = NULL WHERE name = 'test-read'")
