from __future__ import annotations

import itertools
import json
import socket
import time

import pytest

from tests.live.connections import bearer, connect
from tests.served import Served

pytestmark = pytest.mark.served

_hosts = itertools.count()


@pytest.fixture
def runner(shared: Served) -> str:
    """A registered runner that takes only what is tagged with its id."""
    identity = {
        "hostname": f"poll-host-{next(_hosts)}", "project_dir": "/x", "executor_profile": "p",
        "executor": {"type": "t", "command": "c", "config": {}},
    }  # fmt: skip
    return str(shared.client("runner").post("/runner/register", json=identity).json()["runner_id"])


def order(served: Served, host: str | None = None) -> str:
    """Order a run, for any runner or for that host's, and return its id."""
    demands = {"additional_demands": {"hostname": host}} if host else {}
    answer = served.client().post("/runs", json={"type": "start_session", "prompt": "x"} | demands)
    assert answer.status_code == 201
    return str(answer.json()["run_id"])


def host_of(served: Served, runner: str) -> str:
    return str(served.sql("SELECT hostname FROM runners WHERE runner_id = ?", (runner,))[0][0])


@pytest.mark.parametrize("worker", [0, 1])
def test_a_waiting_runner_has_its_run_soon_whichever_worker_holds_it(
    shared: Served, runner: str, worker: int
) -> None:
    connection = connect(shared, to=shared.all_worker_pids()[worker])
    connection.request("GET", f"/runner/runs?runner_id={runner}", headers=bearer("runner"))
    time.sleep(0.2)  # so that it waits: an order that is there already is another test
    began = time.monotonic()
    run_id = order(shared, host_of(shared, runner))
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["run"]["run_id"]) == (200, run_id)
    assert time.monotonic() - began < 2


def test_a_poll_without_news_is_204_after_its_length(shared: Served, runner: str) -> None:
    connection = connect(shared)
    began = time.monotonic()
    connection.request("GET", f"/runner/runs?runner_id={runner}", headers=bearer("runner"))
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (204, b"")
    assert 2.5 < time.monotonic() - began < 6


def test_a_run_is_not_lost_to_a_client_that_went_away(shared: Served, runner: str) -> None:
    host = host_of(shared, runner)
    gone = connect(shared)
    gone.request("GET", f"/runner/runs?runner_id={runner}", headers=bearer("runner"))
    time.sleep(0.2)
    assert gone.sock is not None
    gone.sock.shutdown(socket.SHUT_RDWR)
    gone.close()
    run_id = order(shared, host)
    connection = connect(shared)
    connection.request("GET", f"/runner/runs?runner_id={runner}", headers=bearer("runner"))
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["run"]["run_id"]) == (200, run_id)


def test_a_runner_that_is_not_registered_is_told_so(shared: Served) -> None:
    connection = connect(shared)
    connection.request("GET", "/runner/runs?runner_id=lnch_none", headers=bearer("runner"))
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (401, {"detail": "Runner not registered"})


def test_a_poll_must_name_its_runner(shared: Served) -> None:
    connection = connect(shared)
    connection.request("GET", "/runner/runs", headers=bearer("runner"))
    answer = connection.getresponse()
    assert answer.status == 422
    assert json.loads(answer.read())["detail"][0]["loc"] == ["query", "runner_id"]
