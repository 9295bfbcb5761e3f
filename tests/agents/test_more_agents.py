"""Agents beside the four that most people run, themselves: connected, held, decided, disconnected.

What each runs is real, its model is a script. What else is known of them was recorded: tests/dialects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.dialects.dialect_registry import DIALECTS
from tests.agents import programs
from tests.agents.asking import asked, decide, hold
from tests.agents.connected import connect, signalbox
from tests.agents.real_agents import MORE_AGENTS, PROMPT, Home
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
REASON = "Not on a Friday."
EDITS = {name for name, dialect in DIALECTS.items() if dialect.edits}


@pytest.fixture(params=MORE_AGENTS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    programs.needed(request.param)
    home = Home(request.param, tmp_path / request.param)
    yield home
    home.close()


def test_connected_held_edited_denied_approved_and_disconnected(served: Served, home: Home) -> None:
    name = home.agent.name
    hold(served)
    settings = {path: path.read_bytes() for path in home.path.rglob("*.json")}
    connect(home, served)
    assert "as it should be" in signalbox(home, "connect", "--check")
    approver = served.sign_in("approver")
    edit = {"edited": "touch edited", "edited_field": "command"} if name in EDITS else {}
    run = home.starts("echo one > one", "touch denied", "touch asked", "touch approved")
    try:
        for command, verdict, more in (
            ("touch denied", "denied", {"reason": REASON}),
            ("touch asked", "approved", edit),
            ("touch approved", "approved", {}),
        ):
            request = asked(served, name, command)
            assert request is not None, f"{command} is not asked about: {run.output()}"
            assert not home.ran(command.removeprefix("touch "))
            decide(approver, request, verdict, **more)
        model_was_told = json.dumps(run.ended()[-1])
    finally:
        run.close()
    assert REASON in model_was_told
    ran = {file for file in ("one", "denied", "asked", "edited", "approved") if home.ran(file)}
    assert ran == {"one", "edited" if edit else "asked", "approved"}
    assert_was_told(served, name)
    signalbox(home, "disconnect", name)
    for path, before in settings.items():  # Qwen Code adds the version of its settings
        assert json.loads(path.read_text()).items() >= json.loads(before).items()
    assert not [path for path in home.settings_files() if "signalbox" in path.read_text()]
    if name != "kilo":  # which takes half a minute to begin
        home.starts("touch free").ended()
        assert home.ran("free")


def assert_was_told(served: Served, name: str) -> None:
    """Check what the session shows: its beginning, the prompt, each call once and what came of it, its end."""
    rows: list[tuple[Any, ...]] = served.sql(
        "SELECT e.event_type, e.tool_input, e.error, e.role, e.content FROM events e"
        " WHERE e.session_id IN (SELECT session_id FROM permission_context JOIN sessions USING (session_id)"
        " WHERE executor_profile = ?) ORDER BY e.id",
        (name,),
    )
    assert rows[0][0] == "session_start"
    words = [content for *_, role, content in rows if role == "assistant"]
    assert sum("Done." in content for content in words) == 1, "\n".join(map(str, rows))
    if name == "kilo":
        assert any(kind == "model_request" for kind, *_ in rows)
    assert any(role == "user" and PROMPT in content for *_, role, content in rows)
    commands = {
        kind: [json.loads(given)["command"] for event, given, *_ in rows if event == kind]
        for kind in ("pre_tool", "post_tool")
    }
    assert commands["pre_tool"] == ["echo one > one", "touch denied", "touch asked", "touch approved"]
    assert len(commands["post_tool"]) == 4
    errors = [error for event, _, error, *_ in rows if event == "post_tool"]
    assert [error is None for error in errors] == [True, False, True, True]
    assert REASON in errors[1]
