"""Workers that are killed under load leave no gap in the log and no checkpoint of what was never committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.audit_kills import killed_under_load
from tests.served import Served

pytestmark = pytest.mark.served
KILLS = (
    2  # one of a worker, one of a worker and of who seals; `python -m tests.bench.audit_kills` kills 50 times
)


def test_killed_workers_leave_no_gap_in_the_log(serve: Callable[..., Served], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    served = serve(SIGNALBOX_MAX_PENDING_REQUESTS="100000", SIGNALBOX_AUDIT_CHECKPOINTS=f"file:{outside}")
    found = killed_under_load(served, outside, KILLS, pause=0.02)
    assert found.problems == []
    assert found.kills == KILLS
    assert found.entries >= found.acknowledged > KILLS
    assert found.checkpoints > 0
