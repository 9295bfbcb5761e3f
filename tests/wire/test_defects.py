"""The original's fifteen reproduced defects, by their number: we have none of them.

Where a defect takes a served program or a race to show, the test stands elsewhere: 2 and 7 in
test_example_runner.py, 4 and 5 in tests/live and tests/edge, 6 and 8 to 10 also in tests/runs.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from coordinator import settings as product_settings
from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.actions.people import keys
from coordinator.actions.runs.claiming import CLAIMABLE
from coordinator.actions.sessions import events
from coordinator.identity.actors import system_actor
from coordinator.models import Run, Session
from coordinator.runs.statuses import START
from coordinator.sessions.events import NewEvent
from tests.runs.fleet import NOON, OPERATOR, Fleet

pytestmark = pytest.mark.django_db


class Api:
    """The REST doors as an operator's client sees them."""

    def __init__(self) -> None:
        _, raw = keys.issue_api_key(
            name="api", scopes=["operator", "runner"], actor=system_actor("tests"), now=timezone.now()
        )
        self.client = Client(headers={"Authorization": f"Bearer {raw}"})

    def __call__(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.client.generic(
            method, path, b"" if body is None else json.dumps(body), content_type="application/json"
        )
        assert answer.status_code == status, answer.content
        return answer.json() if answer.content else None

    def start(self, **order: Any) -> dict[str, Any]:
        return self("POST", "/runs", {"type": "start_session", "prompt": "x", **order}, 201)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def send(session_id: str, *timestamps: str, **fields: Any) -> None:
    """Have events of a session recorded."""
    made = [
        NewEvent(event_type="message", session_id=session_id, timestamp=at, reason=str(n), **fields)
        for n, at in enumerate(timestamps)
    ]
    events.record_events(made, timezone.now())


def test_1_a_bad_request_is_refused_and_blocks_nobody(api: Api) -> None:
    body = {"type": "start_session", "prompt": "x", "parent_session_id": "ses_none"}
    api("POST", "/runs", body, 404)
    api("POST", "/runs", {"type": "resume_session", "prompt": "x", "session_id": "ses_none"}, 404)
    assert api("GET", "/sessions") == {"sessions": []}
    api.start()


def test_3_every_event_can_be_read(api: Api) -> None:
    session_id = api.start()["session_id"]
    send(session_id, *[f"2026-01-06T10:00:00.{n:06}+00:00" for n in range(250)])
    path = f"/sessions/{session_id}/events"
    first = api("GET", path)["events"]
    assert [event["reason"] for event in first] == [str(n) for n in range(100)]
    rest = api("GET", f"{path}?after={first[-1]['id']}&limit=1000")["events"]
    assert [event["reason"] for event in rest] == [str(n) for n in range(100, 250)]
    last = api("GET", f"{path}?before={rest[-1]['id']}&limit=3")["events"]
    assert [event["reason"] for event in last] == ["246", "247", "248"]


def test_6_a_failed_run_is_an_error_of_its_session(fleet: Fleet, api: Api) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    body = {"runner_id": runner.runner_id}
    api("POST", f"/runner/runs/{run.run_id}/failed", {**body, "error": "boom"})
    assert api("GET", f"/sessions/{run.session_id}/status") == {"status": "error"}
    for late in ("started", "completed", "stopped"):
        api("POST", f"/runner/runs/{run.run_id}/{late}", body)
    assert api("GET", f"/runs/{run.run_id}")["status"] == "failed"


def test_8_a_resumed_session_can_be_stopped(fleet: Fleet, api: Api) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start())
    fleet.complete(runner, first)
    second = fleet.running(runner, fleet.resume(first.session_id))
    answer = api("POST", f"/sessions/{first.session_id}/stop")
    assert (answer["status"], answer["run_id"]) == ("stopping", second.run_id)


def test_10_no_two_live_runners_share_an_id_and_no_other_ends_a_run(fleet: Fleet, api: Api) -> None:
    fleet.now = timezone.now()
    holder, other = fleet.runner("a"), fleet.runner("b")
    run = fleet.running(holder, fleet.start())
    identity = {"hostname": "a", "project_dir": holder.project_dir, "executor_profile": "test-executor"}
    assert api("POST", "/runner/register", identity, 409)["detail"]["error"] == "duplicate_runner"
    api("POST", f"/runner/runs/{run.run_id}/completed", {"runner_id": other.runner_id}, 403)


def test_11_keys_are_asked_for_loopback_is_the_default_and_no_page_elsewhere_is_let_in(api: Api) -> None:
    assert product_settings.API_AUTH
    assert product_settings.BIND_HOST == "127.0.0.1"
    answer = Client().post("/runs", {}, content_type="application/json", headers={"Origin": "https://evil"})
    assert answer.status_code == 401
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_11_a_path_of_dots_deletes_nothing(api: Api) -> None:
    api("POST", "/agents", {"name": "kept", "description": ""}, 201)
    api("DELETE", "/agents/%2e%2e", status=404)
    api("DELETE", "/capabilities/%2e%2e", status=404)
    assert [agent["name"] for agent in api("GET", "/agents")] == ["kept"]


def test_12_an_idle_poll_costs_the_same_however_long_the_history(fleet: Fleet) -> None:
    runner = fleet.runner()

    def cost() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert fleet.poll(runner) is None
        return len(queries)

    before = cost()
    Session.objects.bulk_create(
        Session(session_id=f"old{n}", status="finished", created_at=NOON) for n in range(600)
    )
    Run.objects.bulk_create(
        Run(
            run_id=f"run_{n}",
            session_id=f"old{n % 600}",
            type=START,
            prompt="x",
            status="completed",
            created_at=NOON,
        )
        for n in range(3000)
    )
    assert cost() == before <= 4
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE runs")
        explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
        cursor.execute(f"{explain} {CLAIMABLE.format(ahead='')}", ["lnch_any"])
        plan = str(cursor.fetchall())
    assert "Seq Scan on runs" not in plan
    assert "SCAN" not in plan


def test_13_lists_are_bounded_and_page_to_their_end(api: Api) -> None:
    for n in range(7):
        runs.queue_start_or_resume_run(
            kind=START, prompt=str(n), actor=OPERATOR, now=NOON + timedelta(seconds=n), session_id=f"s{n}"
        )
    seen, cursor = [], ""
    while cursor is not None:
        page = api("GET", f"/sessions?limit=3{cursor and f'&cursor={cursor}'}")
        seen += [session["session_id"] for session in page["sessions"]]
        cursor = page.get("next_cursor")
    assert seen == [f"s{n}" for n in reversed(range(7))]
    newest = api("GET", "/runs?limit=3")
    assert [run["prompt"] for run in newest["runs"]] == ["4", "5", "6"]
    older = api("GET", f"/runs?limit=3&cursor={newest['next_cursor']}")
    assert [run["prompt"] for run in older["runs"]] == ["1", "2", "3"]
    api("GET", "/sessions?limit=1001", status=422)


def test_14_events_of_one_instant_keep_their_order_and_zones_are_understood(api: Api) -> None:
    session_id = api.start()["session_id"]
    send(
        session_id,
        "2026-01-06T10:00:00+00:00",
        "2026-01-06T10:00:00Z",
        "2026-01-06T11:30:00+02:00",
        "2026-01-06T10:00:00+00:00",
    )
    shown = api("GET", f"/sessions/{session_id}/events")["events"]
    assert [event["reason"] for event in shown] == ["2", "0", "1", "3"]
    assert shown[0]["timestamp"] == "2026-01-06T11:30:00+02:00"


def test_14_empty_values_are_kept(api: Api) -> None:
    session_id = api.start()["session_id"]
    send(session_id, "t", tool_input={}, tool_output=0, content=[])
    (event,) = api("GET", f"/sessions/{session_id}/events")["events"]
    assert (event["tool_input"], event["tool_output"], event["content"]) == ({}, 0, [])


def test_15_three_generations_of_clients_are_understood(api: Api) -> None:
    order = {"type": "start_session", "parameters": {"prompt": "of a newer client"}}
    run_id = api("POST", "/runs", order, 201)["run_id"]
    registration = {
        "hostname": "vm",
        "project_dir": "/p",
        "executor_profile": "t",
        "executor": {"type": "x", "command": "y", "config": {}, "lifecycle": "persistent"},
        "agents": [{"name": "own"}],
    }
    runner_id = api("POST", "/runner/register", registration)["runner_id"]
    answer = runners.claim_next_runner_work(runner_id, timezone.now())
    assert answer is not None
    assert answer["run"]["prompt"] == "of a newer client"
    assert answer["run"]["parameters"] == {"prompt": "of a newer client"}
    body = {"runner_id": runner_id}
    api("POST", f"/runner/runs/{run_id}/started", body)
    api("POST", f"/runner/runs/{run_id}/completed", {**body, "session_status": "idle", "status": "success"})
    assert api("GET", "/runners")["runners"][0]["executor"]["lifecycle"] == "persistent"


def test_a_session_at_work_is_not_deleted_under_its_runner(fleet: Fleet, api: Api) -> None:
    run = fleet.running(fleet.runner(), fleet.start())
    api("DELETE", f"/sessions/{run.session_id}", status=409)
    assert api("GET", f"/runs/{run.run_id}")["status"] == "running"


def test_the_result_is_the_last_word(api: Api, fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    said = [{"type": "text", "text": "a message"}]
    send(run.session_id, "2026-01-06T10:00:00Z", role="assistant", content=said)
    fleet.complete(runner, run)
    path = f"/sessions/{run.session_id}/result"
    assert api("GET", path) == {"result": "a message", "result_text": "a message", "result_data": None}
    newer = NewEvent(
        event_type="result",
        session_id=run.session_id,
        timestamp="2026-01-06T10:00:01Z",
        result_text="done",
        result_data={"n": 1},
    )
    events.record_events([newer], timezone.now())
    assert api("GET", path) == {"result": "done", "result_text": "done", "result_data": {"n": 1}}
