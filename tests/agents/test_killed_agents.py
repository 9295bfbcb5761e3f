"""A real agent that is killed while its call is held: its card closes, and nothing runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.agents import programs
from tests.agents.asking import asked, hold
from tests.client.programs import until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]


@pytest.mark.parametrize("name", ["claude-code", "codex"])
@pytest.mark.parametrize("is_certain", [True, False], ids=["held for certain", "asked"])
def test_its_card_closes(
    served: Served, homes: Callable[..., Any], start: Callable[..., Any], name: str, is_certain: bool
) -> None:
    programs.needed(name)
    hold(served, deny_at_deadline=is_certain)
    (run,) = start(homes(served, only=name), "touch marker").values()
    request_id = asked(served, name, "touch marker")
    assert request_id is not None, run.output()
    os.kill(run.process.pid, signal.SIGKILL)  # and not the shells and hooks below it
    with until() as pause:
        while served.sql("SELECT status FROM permission_requests") != [("withdrawn",)]:
            pause()
    assert not run.home.ran("marker")
