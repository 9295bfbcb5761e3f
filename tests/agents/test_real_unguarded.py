"""A real Claude Code whose guarding hooks were taken out runs its call, and its session says that nobody guarded it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.connected import paste
from tests.agents.real_agents import Home
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
GUARDING = ("PreToolUse", "PermissionRequest")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    programs.needed("claude-code")
    home = Home("claude-code", tmp_path / "home")
    yield home
    home.close()


@pytest.mark.parametrize("are_guarded", [True, False])
def test_a_call_is_named_where_its_hook_was_taken_out_and_only_there(
    served: Served, home: Home, are_guarded: bool
) -> None:
    paste(home, served)
    file = home.path / ".claude" / "settings.json"
    settings = json.loads(file.read_text())
    if not are_guarded:
        for name in GUARDING:
            del settings["hooks"][name]
    file.write_text(json.dumps(settings))
    run = home.starts("touch marker")
    run.ended()
    run.close()
    assert home.ran("marker")
    until = time.monotonic() + PATIENCE
    ended = "SELECT session_id FROM events WHERE event_type = 'post_tool'"
    while not (rows := served.sql(ended)):
        assert time.monotonic() < until, "no result came"
        time.sleep(0.02)
    page = " ".join(served.sign_in("viewer").get(f"/ui/sessions/{rows[0][0]}/").text.split())
    assert ("1 call never came to the hook" in page) is not are_guarded
