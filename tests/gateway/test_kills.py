"""The server is killed three times while calls wait at the gateway: a small run of `tests.bench.gateway_kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.gateway_kills import Kills
from tests.served import Template

pytestmark = pytest.mark.served


def test_no_call_runs_unapproved_and_none_twice_through_three_kills(
    served_template: Template, tmp_path: Path
) -> None:
    with Kills(served_template, tmp_path / "server", seed="kept", each=5) as kills:
        for _ in range(3):
            kills.round()
    assert kills.tally.ran
    assert (kills.tally.unapproved_ran, kills.tally.ran_twice) == ([], [])
