"""A runner that speaks only HTTP, against the served program."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.example_runner import ExampleRunner
from tests.patience import PATIENCE, until
from tests.served import KEYS, Served, Template, running
from tests.wire.player import Frames, read_frames

pytestmark = pytest.mark.served

API_PAGE = Path(__file__).parent.parent.parent / ".docs/api.md"


@pytest.fixture(scope="module")
def quick(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose clock is as quick as tests like it."""
    clock = {"SIGNALBOX_RUNNER_POLL_TIMEOUT": "5", "SIGNALBOX_LIFECYCLE_INTERVAL": "0.5"}
    with running(served_template, tmp_path_factory.mktemp("one") / "server", **clock) as server:
        yield server


@pytest.fixture
def short(quick: Served) -> Served:
    """That server, at work, without the runs and runners of other tests."""
    return quick.emptied("runs", "runners", "events", "sessions")


def eventually(check: Callable[[], Any], within: float = PATIENCE) -> Any:
    """Return the first true answer of `check`."""
    return until(check, f"not within {within} s", rest=lambda: time.sleep(0.05), within=within)


def order(client: httpx.Client, prompt: str, **fields: Any) -> dict[str, Any]:
    body = {"type": "start_session", "project_dir": ".", "prompt": prompt, **fields}
    answer = client.post("/runs", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def ended(client: httpx.Client, run_id: str) -> Callable[[], dict[str, Any] | None]:
    def look() -> dict[str, Any] | None:
        run = client.get(f"/runs/{run_id}").json()
        return run if run["status"] in {"completed", "failed", "stopped"} else None

    return look


def documented_curl_command(url: str, key: str) -> str:
    """Return the help page's command that starts a session, for this server."""
    (command,) = re.findall(r"^curl .*?/runs(?:.*\\\n)*.*$", API_PAGE.read_text(), re.MULTILINE)
    return command.replace("http://127.0.0.1:8765", url).replace("$KEY", key)


def name_in_calls(frames: Frames) -> list[str]:
    """What the stream has told of events, by their types."""
    return [data["data"]["event_type"] for _, event, data in list(frames.frames) if event == "event"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_session_started_as_the_help_page_says_runs_streams_and_finishes(short: Served) -> None:
    client = short.client()
    frames = Frames()
    threading.Thread(target=read_frames, args=(client, {}, {}, frames), daemon=True).start()
    frames.opened.wait(60)
    with ExampleRunner(short.url, KEYS["runner"]):
        command = documented_curl_command(short.url, KEYS["operator"])
        done = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True, timeout=30)
        session_id = re.search(r"ses_[0-9a-f]{12}", done.stdout)[0]  # type: ignore[index]
        eventually(lambda: client.get(f"/sessions/{session_id}/status").json()["status"] == "finished")
        result = eventually(lambda: client.get(f"/sessions/{session_id}/result").json()["result"])
        assert result.startswith("[EXAMPLE] Received: ")
        eventually(lambda: "session_stop" in name_in_calls(frames))
        assert name_in_calls(frames) == ["session_start", "message", "message", "session_stop"]
    frames.close()


def test_a_waiting_runner_gets_its_run_and_its_stop_at_once(short: Served) -> None:
    client = short.client()
    with ExampleRunner(short.url, KEYS["runner"]) as runner:
        time.sleep(0.3)  # its poll is held
        began = time.monotonic()
        run = order(client, "[[delay:30]] slow")
        eventually(lambda: runner.took)
        assert time.monotonic() - began < 4  # not at the end of the poll, which is held 5 s
        eventually(lambda: client.get(f"/runs/{run['run_id']}").json()["status"] == "running")
        time.sleep(0.3)
        began = time.monotonic()
        assert client.post(f"/sessions/{run['session_id']}/stop").json()["status"] == "stopping"
        assert eventually(ended(client, run["run_id"]))["status"] == "stopped"
        assert time.monotonic() - began < 4


def test_five_callbacks_of_a_busy_parent_come_as_one(short: Served) -> None:
    client = short.client()
    with ExampleRunner(short.url, KEYS["runner"]) as runner:
        parent = order(client, "parent")
        eventually(ended(client, parent["run_id"]))
        body = {
            "type": "resume_session",
            "session_id": parent["session_id"],
            "prompt": "[[delay:12]] busy parent",
        }
        busy = client.post("/runs", json=body).json()
        children = [
            order(
                client,
                f"callback-{n:03}",
                parent_session_id=parent["session_id"],
                execution_mode="async_callback",
            )
            for n in range(5)
        ]
        for child in children:
            eventually(ended(client, child["run_id"]))
        assert ended(client, busy["run_id"])() is None, "the children are to end while their parent is busy"
        eventually(lambda: "Multiple child" in runner.took[-1]["prompt"])
        prompt = runner.took[-1]["prompt"]
        for n, child in enumerate(children):
            part = f"### Child: {child['session_id']} (completed)\n\n[EXAMPLE] Received: callback-{n:03}"
            assert prompt.count(part) == 1
        eventually(ended(client, runner.took[-1]["run_id"]))
        of_parent = [run for run in runner.took if run["session_id"] == parent["session_id"]]
        assert len(of_parent) == 3


def test_runners_and_runs_outlive_a_restart(short: Served) -> None:
    client = short.client()
    with ExampleRunner(short.url, KEYS["runner"]) as runner:
        run = order(client, "[[delay:4]] through a restart")
        eventually(lambda: runner.took)
        waiting = order(client, "for nobody", additional_demands={"tags": ["nobody"]})
        eventually(lambda: client.get(f"/runs/{run['run_id']}").json()["status"] == "running")
        short.stop()
        short.start()
        assert eventually(ended(client, run["run_id"]))["status"] == "completed"
        assert client.get(f"/runs/{waiting['run_id']}").json()["status"] == "pending"
        after = order(client, "after the restart")
        assert eventually(ended(client, after["run_id"]))["status"] == "completed"
        assert runner.thread.is_alive()


def test_a_poll_whose_client_vanished_loses_no_run(short: Served) -> None:
    client = short.client()
    gone = ExampleRunner(short.url, KEYS["runner"], hostname="gone")
    gone.register()
    with pytest.raises(httpx.ReadTimeout):
        gone.client.get("/runner/runs", params={"runner_id": gone.runner_id}, timeout=0.5)
    gone.client.close()
    run = order(client, "who takes me")
    with ExampleRunner(short.url, KEYS["runner"], hostname="there") as there:
        assert eventually(ended(client, run["run_id"]))["status"] == "completed"
        assert [taken["run_id"] for taken in there.took] == [run["run_id"]]


def test_a_runner_that_crashed_in_its_poll_may_come_back_at_once(short: Served) -> None:
    first = ExampleRunner(short.url, KEYS["runner"])
    first.register()
    with pytest.raises(httpx.ReadTimeout):
        first.client.get("/runner/runs", params={"runner_id": first.runner_id}, timeout=0.5)
    first.client.close()
    again = ExampleRunner(short.url, KEYS["runner"])
    eventually(lambda: _registers(again))
    assert again.runner_id == first.runner_id
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        ExampleRunner(short.url, KEYS["runner"]).register()


def _registers(runner: ExampleRunner) -> bool:
    try:
        runner.register()
    except httpx.HTTPStatusError:
        return False
    return True


def test_a_killed_worker_loses_nothing(short: Served) -> None:
    client = short.client()
    with ExampleRunner(short.url, KEYS["runner"]) as runner:
        run = order(client, "[[delay:2]] survive")
        eventually(lambda: runner.took)
        short.kill_worker()
        short.kill_worker()
        assert eventually(lambda: _ended_or_none(client, run["run_id"]))["status"] == "completed"


def _ended_or_none(client: httpx.Client, run_id: str) -> dict[str, Any] | None:
    try:
        return ended(client, run_id)()
    except (httpx.TransportError, KeyError):
        return None
