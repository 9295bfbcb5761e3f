"""Many runners, three worker processes: every run is run once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.example_runner import ExampleRunner
from tests.served import KEYS, Served
from tests.wire.test_example_runner import ended, eventually, order

pytestmark = pytest.mark.served


def test_every_run_is_run_exactly_once(serve: Callable[..., Served]) -> None:
    served = serve(workers=3, SIGNALBOX_RUNNER_POLL_TIMEOUT="5")
    client = served.client()
    with ExitStack() as fleet:
        runners = [
            fleet.enter_context(ExampleRunner(served.url, KEYS["runner"], hostname=f"host-{n}"))
            for n in range(6)
        ]
        ordered = [order(client, f"task {n}") for n in range(30)]
        for run in ordered:
            assert eventually(ended(client, run["run_id"]), within=60)["status"] == "completed"
        taken = Counter(run["run_id"] for runner in runners for run in runner.took)
    assert taken == Counter(run["run_id"] for run in ordered)
    for run in ordered:
        events = client.get(f"/sessions/{run['session_id']}/events").json()["events"]
        assert [event["event_type"] for event in events] == [
            "session_start",
            "message",
            "message",
            "session_stop",
        ]
