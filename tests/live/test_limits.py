from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.live.connections import Stream, bearer, connect, make_session, message, post
from tests.served import Served, Template, postgres_url, running

pytestmark = pytest.mark.served


def test_beyond_the_limit_a_stream_is_refused_with_a_time_to_come_back(serve: Callable[..., Served]) -> None:
    served = serve(workers=2, SIGNALBOX_MAX_STREAMS="3", SIGNALBOX_STREAMS_PER_CLIENT="2")
    pid = served.all_worker_pids()[0]
    mine = [Stream(served, to=pid) for _ in range(2)]
    third = Stream(served, to=pid)
    assert (third.status, third.headers["Retry-After"]) == (429, "30")
    other = Stream(served, to=pid, **bearer("read"))
    assert other.status == 200
    full = Stream(served, to=pid, **bearer("operator"))
    assert (full.status, full.headers["Retry-After"]) == (503, "5")
    assert Stream(served, to=served.all_worker_pids()[1]).status == 200
    mine[0].close()
    deadline = time.monotonic() + 60  # gunicorn lets an application end in peace for three seconds
    while (again := Stream(served, to=pid)).status != 200:
        assert time.monotonic() < deadline, "a closed stream still counts"
        time.sleep(0.1)
    again.close()


def test_headers_over_the_limit_are_refused(served: Served) -> None:
    connection = connect(served)
    connection.request("GET", "/sse/sessions", headers={"X-Long": "x" * 20_000})
    assert connection.getresponse().status == 431


def test_without_keys_only_programs_of_this_machine_may_call(without_keys: Served) -> None:
    served = without_keys
    make_session(served, "ses_1")
    connection = connect(served)
    assert post(connection, "/sessions/ses_1/events", message("ses_1", "x"), Authorization="")[0] == 201
    foreign = {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}
    for headers in (*foreign, {"X-Forwarded-For": "10.0.0.7"}, {"Forwarded": "for=10.0.0.7"}):
        status, _ = post(connect(served), "/sessions/ses_1/events", message("ses_1", "x"), **headers)
        assert status == 403, headers
        connection = connect(served)
        connection.request("GET", "/sse/sessions", headers=headers)
        assert connection.getresponse().status == 403
        connection = connect(served)
        connection.request("GET", "/sessions", headers=headers)
        # A foreign host is not ours to answer at all (400); everybody else is known and refused.
        assert connection.getresponse().status == (400 if "Host" in headers else 403), headers
    connection = connect(served)
    connection.request("GET", "/ui/live/?topics=sessions")
    assert connection.getresponse().status == 401, "pages are for people who have signed in, always"


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "odd"}],
)
def test_without_keys_a_page_of_another_site_reads_and_does_nothing(
    without_keys: Served, headers: dict[str, str]
) -> None:
    """A browser sends no Origin with a GET that it only shows: an image, a frame, a link."""
    for path in ("/runner/runs?runner_id=r", "/sessions", "/sse/sessions", "/api/chat/agent.x/messages/wait"):
        answer = without_keys.client(key=None).get(path, headers=headers)
        assert answer.status_code == 403, path


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin"},
        {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/78.0"},
        {"Referer": "http://evil.example/"},
    ],
)
def test_without_keys_no_browser_claims_a_run(without_keys: Served, headers: dict[str, str]) -> None:
    program = without_keys.client(key=None)
    registered = {"hostname": str(headers), "project_dir": "/", "executor_profile": "p"}
    runner_id = program.post("/runner/register", json=registered).json()["runner_id"]
    assert program.post("/runs", json={"type": "start_session", "prompt": "x"}).is_success
    assert program.get(f"/runner/runs?runner_id={runner_id}", headers=headers).status_code == 403
    assert program.get("/api/permission-requests/x/wait", headers=headers).status_code == 403
    assert program.get("/sessions", headers=headers).status_code == 200
    run = program.get(f"/runner/runs?runner_id={runner_id}").json()["run"]
    assert run["prompt"] == "x"


@pytest.fixture(scope="module")
def without_keys(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("open") / "data"
    with running(served_template, folder, workers=1, SIGNALBOX_API_AUTH="off") as server:
        yield server


def test_a_slow_reader_slows_nobody_and_catches_up(served: Served) -> None:
    make_session(served, "ses_1")
    pid = served.all_worker_pids()[0]
    quick = Stream(served, "/sse/sessions?session_id=ses_1", to=pid)
    slow = connect(served, to=pid)
    assert slow.sock is not None
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.request("GET", "/sse/sessions?session_id=ses_1", headers=bearer())
    text = "x" * 1_000_000
    for number in range(40):
        assert post(connect(served), "/sessions/ses_1/events", message("ses_1", f"{number} {text}"))[0] == 201
    quick.wait(lambda frames: sum(frame.event == "event" for frame in frames) == 40)
    quick.close()
    caught_up = Stream(served, "/sse/sessions?session_id=ses_1", Last_Event_ID=quick.frames[0].id)
    caught_up.wait(lambda frames: len(frames) == 40)
    caught_up.close()


@pytest.mark.skipif(
    postgres_url() is None, reason="only PostgreSQL can kill a connection; SQLite: tests/feed"
)
def test_a_tailer_whose_connection_is_killed_loses_nothing(served: Served) -> None:
    make_session(served, "ses_1")
    streams = [Stream(served, "/sse/sessions?session_id=ses_1", to=pid) for pid in served.all_worker_pids()]
    for stream in streams:
        stream.wait(lambda frames: frames)
    for number in range(5):
        assert post(connect(served), "/sessions/ses_1/events", message("ses_1", str(number)))[0] == 201
        killed = served.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name = 'signalbox-feed' AND datname = current_database()"
        )
        assert number or killed == [(2,)]
    for stream in streams:
        stream.wait(lambda frames: sum(frame.event == "event" for frame in frames) >= 5)
        assert [event["content"][0]["text"] for event in stream.events()] == ["0", "1", "2", "3", "4"]
        stream.close()
