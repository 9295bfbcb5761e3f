"""The model of a real agent is told that a person changed its call, with the result of what ran."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.connected import connect
from tests.agents.real_agents import AGENTS, Home
from tests.agents.test_real_claude_code import asked
from tests.claude_code.test_deciding import rules, served_form
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
EDITED = "A person (approver) changed this call"
# Gemini CLI says by itself that a hook changed the input, but not who did and to what.
BY_ITSELF = "were modified by a hook"


@pytest.mark.parametrize(
    ("name", "program", "told"),
    [
        ("claude-code", "claude-code", EDITED),
        ("claude-code", "claude-code-newest", EDITED),
        ("codex", "codex", EDITED),
        ("gemini", "gemini", BY_ITSELF),
    ],
)
def test_the_models_next_request_says_that_its_call_was_changed(
    served: Served, tmp_path: Path, name: str, program: str, told: str
) -> None:
    programs.needed(program)
    home = Home(name, tmp_path, program)
    rules(served, {"tool": AGENTS[name].tool, "verdict": "ask"})
    connect(home, served)
    run = home.starts("touch marker")
    try:
        approver = served.sign_in("approver")
        form = served_form(approver, asked(served), edited="touch edited", edited_field="command")
        assert approver.post("/ui/approvals/decide/", data=form).status_code == 200
        requests = run.ended()
        assert (home.ran("edited"), home.ran("marker")) == (True, False)
        last = json.dumps(requests[-1])
        assert told in last
        assert told == BY_ITSELF or "touch edited" in last
    finally:
        run.close()
        home.close()
