"""Shell lines of skills, and rules about what was recorded before a call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.utils import timezone

from coordinator.edge.policy.rulings import PolicyRulings
from coordinator.errors import ServiceBusy
from coordinator.lib import instants
from coordinator.policy.rules.call_history import TimedCall
from coordinator.policy.rules.tool_rules import DecisionRule
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import AGENT_KEY, let_workers_read_rules, rules
from tests.claude_code.test_shell_lines import LINES, UNKNOWN, asked, command, served, skill
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


@pytest.mark.parametrize("found", [LINES, UNKNOWN], ids=["lines", "unknown"])
def test_a_shell_line_after_a_marked_result_does_not_run_unasked(claude: Claude, found: Any) -> None:
    assert skill(claude, found)["permissionDecision"] == "deny"
    assert command(claude, found)["decision"] == "block"


def test_people_are_asked_about_lines_that_nobody_knows_after_a_marked_result(
    served: Served, claude: Claude
) -> None:
    skill(claude, UNKNOWN)
    ((_, _, words),) = asked(served, claude)
    assert UNKNOWN["problem"] in words
    assert "Not after that." in words


@pytest.mark.parametrize(
    "repeats", [MARKED, "same call 2 times in 60 minutes", "same error 2 times in 60 minutes"]
)
def test_lines_that_nobody_knows_run_where_no_marked_result_came(
    served: Served, claude: Claude, repeats: str
) -> None:
    served.sql("UPDATE tool_rules SET repeats = ?", (repeats,))
    served.emptied("mcp_result_marks")
    let_workers_read_rules()
    assert skill(claude, UNKNOWN) == {}
    assert command(claude, UNKNOWN) == {}


def test_a_rule_stays_where_marked_results_cannot_be_read() -> None:
    async def find_no_moment() -> TimedCall:
        raise ServiceBusy("The database does not answer.")

    marked, repeated, plain = (
        DecisionRule(number, "Bash", "deny", repeats=repeats)
        for number, repeats in enumerate((MARKED, "same call 2 times in 60 minutes", ""), 1)
    )
    rulings = object.__new__(PolicyRulings)
    left = asyncio.run(rulings.list_rules_about_unknown_call([marked, repeated, plain], find_no_moment))
    assert left == [marked, plain]
