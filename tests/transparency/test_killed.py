"""Workers that are killed under load leave no gap in the log and no checkpoint of what was never committed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import httpx
import pytest

from tests.served import Served, manage

pytestmark = pytest.mark.served
KILLS = 8  # 50 were tried by hand


def ask_until(done: threading.Event, served: Served, name: str) -> None:
    """Ask for permission again and again: each question writes an audit entry."""
    with served.client("agent") as client:
        number = 0
        while not done.is_set():
            body = {
                "plugin_id": "p",
                "permission_type": "FileRead",
                "target_resource": f"/{name}/{number}",
                "justification": "To look",
            }
            with contextlib.suppress(httpx.TransportError):
                client.post("/api/permission-requests", json=body)
                number += 1


def test_killed_workers_leave_no_gap_in_the_log(serve: Callable[..., Served]) -> None:
    served, done = serve(SIGNALBOX_MAX_PENDING_REQUESTS="100000"), threading.Event()
    askers = [threading.Thread(target=ask_until, args=(done, served, name)) for name in ("a", "b", "c")]
    for asker in askers:
        asker.start()
    entries = 0
    for _ in range(KILLS):
        manage("audit", "seal", env=served.env)
        killed, deadline = served.kill_worker(), time.monotonic() + 30
        while killed in served.worker_pids() or len(served.worker_pids()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        ((entries, highest),) = served.sql("SELECT count(*), max(leaf_index) FROM audit_leaves")
        assert highest == entries - 1
    done.set()
    for asker in askers:
        asker.join(60)
    manage("audit", "seal", env=served.env)
    told = manage("audit", "verify", env=served.env).stdout
    assert "Nothing was changed." in told
    assert entries > KILLS
    assert served.sql(
        "SELECT count(*) FROM audit_logs WHERE id NOT IN (SELECT audit_id FROM audit_leaves)"
    ) == [(0,)]
    assert served.sql("SELECT count(*) FROM audit_leaves WHERE NOT by_signalbox") == [(0,)]
