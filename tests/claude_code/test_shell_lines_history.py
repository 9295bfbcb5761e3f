"""Shell lines of skills, and rules about what was recorded before a call."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from coordinator.lib import instants
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import AGENT_KEY, let_workers_read_rules, rules
from tests.claude_code.test_shell_lines import LINES, command, served, skill
from tests.served import Served

pytestmark = pytest.mark.served
__all__ = ("served",)
MARKED = "marked result in 60 minutes"


@pytest.fixture
def claude(served: Served) -> Claude:
    """A session in which a marked result came, where a rule denies commands after one."""
    rules(served, {"tool": "Bash", "verdict": "deny", "reason": "Not after that."})
    served.sql("UPDATE tool_rules SET repeats = ?", (MARKED,))
    let_workers_read_rules()
    claude = Claude(served, key=AGENT_KEY, wait="1")
    claude.prompt("Get going.")
    ((session,),) = served.sql(
        "SELECT session_id FROM sessions WHERE executor_session_id = ?", (claude.session,)
    )
    served.sql(
        "INSERT INTO mcp_result_marks (session_id, server_id, marks, marked_at) VALUES (?, 'shopdb', '[]', ?)",
        (session, instants.format_canonical_instant(timezone.now())),
    )
    return claude


def test_a_command_after_a_marked_result_is_denied(claude: Claude) -> None:
    assert claude.before(claude.new_call("Bash", {"command": "ls"}))["permissionDecision"] == "deny"


@pytest.mark.parametrize("found", [LINES], ids=["lines"])
def test_a_shell_line_after_a_marked_result_does_not_run_unasked(claude: Claude, found: Any) -> None:
    assert skill(claude, found).get("permissionDecision") in {"deny", "ask"}
    assert command(claude, found).get("decision") == "block"
