"""Runners of the oldest and the newest form on one server, through restarts: each in its own words."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.impatient_runner import ImpatientRunner
from tests.served import KEYS, Served, Template, running
from tests.server.test_listening import restart_in_place
from tests.wire.test_example_runner import ended, eventually, order

pytestmark = pytest.mark.served


@pytest.fixture(scope="module")
def served(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    quick = {"SIGNALBOX_RUNNER_POLL_TIMEOUT": "5", "SIGNALBOX_LIFECYCLE_INTERVAL": "0.5"}
    with running(served_template, tmp_path_factory.mktemp("one") / "server", **quick) as server:
        yield server


def types_of(client: httpx.Client, session_id: str) -> list[str]:
    events = client.get(f"/sessions/{session_id}/events").json()["events"]
    return [event["event_type"] for event in events if event["event_type"] != "message"]


def test_old_and_new_runners_work_on_through_restarts(served: Served) -> None:
    client = served.client()
    with (
        ImpatientRunner(served.url, KEYS["runner"], hostname="old") as old,
        ImpatientRunner(served.url, KEYS["runner"], hostname="new", newest=True) as new,
    ):
        first = {
            name: order(client, "hello", additional_demands={"hostname": name}) for name in ("old", "new")
        }
        for run in first.values():
            assert eventually(ended(client, run["run_id"]), within=60)["status"] == "completed"
        sessions = {name: run["session_id"] for name, run in first.items()}
        assert client.get(f"/sessions/{sessions['old']}").json()["session"]["status"] == "finished"
        assert client.get(f"/sessions/{sessions['new']}").json()["session"]["status"] == "idle"
        restart_in_place(served)
        served.stop()
        served.start()
        for session_id in sessions.values():
            body = {"type": "resume_session", "session_id": session_id, "parameters": {"prompt": "go on"}}
            run_id = client.post("/runs", json=body).json()["run_id"]
            assert eventually(ended(client, run_id), within=60)["status"] == "completed"
        assert types_of(client, sessions["old"]) == ["session_start", "session_stop"] * 2
        assert types_of(client, sessions["new"]) == ["run_start", "run_completed"] * 2
        assert client.delete(f"/sessions/{sessions['new']}").status_code == 409
        assert client.post(f"/sessions/{sessions['new']}/stop").json()["status"] == "stopping"
        eventually(lambda: client.get(f"/sessions/{sessions['new']}/status").json()["status"] == "finished")
        assert not old.gave_up
        assert not new.gave_up


def test_a_turn_of_the_newest_runner_is_stopped(served: Served) -> None:
    client = served.client()
    with ImpatientRunner(served.url, KEYS["runner"], newest=True):
        run = order(client, "[[delay:30]] think")
        eventually(lambda: client.get(f"/runs/{run['run_id']}").json()["status"] == "running")
        assert client.post(f"/sessions/{run['session_id']}/stop").json()["status"] == "stopping"
        assert eventually(ended(client, run["run_id"]))["status"] == "stopped"
        assert client.get(f"/sessions/{run['session_id']}/status").json()["status"] == "stopped"
