"""A person switches on each ready-made rule that allows: such calls pass unasked, near ones are asked about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.policy.rules.ready_made_allowing import ALLOWING_RULES
from tests.calls.labelled import FOLDER
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import let_workers_read_rules, rules
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.browser]

ToolCall = tuple[str, dict[str, Any]]
# For each rule a call that it allows, and the nearest that it does not.
CALLS: dict[str, tuple[ToolCall, ToolCall]] = {
    "reads-files": (("Read", {"file_path": "src/cart.py"}), ("Read", {"file_path": "src/.env"})),
    "looks-around": (
        ("Bash", {"command": "git log --oneline -5 | head -3"}),
        ("Bash", {"command": "git log --oneline -5 --output=head"}),
    ),
    "edits-files": (
        ("Write", {"file_path": "src/cart.py", "content": "x"}),
        ("Write", {"file_path": "src/.cart.py", "content": "x"}),
    ),
    "runs-checks": (("Bash", {"command": "pytest -q tests"}), ("Bash", {"command": "pytest -q -p tests"})),
    "commits": (
        ("Bash", {"command": "git add -A && git commit -m 'See cart'"}),
        ("Bash", {"command": "git add -A && git commit --no-verify -m 'See cart'"}),
    ),
    "asks-services": (("Bash", {"command": "gh pr view 12"}), ("Bash", {"command": "gh pr merge 12"})),
    "reads-documentation": (
        ("WebFetch", {"url": "https://docs.python.org/3/", "prompt": "x"}),
        ("WebFetch", {"url": "https://docs.python.org.example.com/3/", "prompt": "x"}),
    ),
    "keeps-tasks": (
        ("TodoWrite", {"todos": [{"content": "x", "status": "pending"}]}),
        ("Write", {"file_path": "TODO", "content": "x"}),
    ),
}


@pytest.fixture
def served(one_server: Served) -> Served:
    return one_server.emptied("permission_requests")


def is_asked(served: Served, claude: Claude, call: ToolCall) -> bool:
    """Make the call; say whether a person was asked about it, who does not answer. Else it was allowed."""
    count = "SELECT count(*) FROM permission_requests"
    [(before,)] = served.sql(count)
    decision = claude.before(claude.new_call(*call))["permissionDecision"]
    [(after,)] = served.sql(count)
    assert (decision, after - before) in {("allow", 0), ("ask", 1)}
    return bool(after - before)


def test_each_switch_lets_such_calls_pass_unasked_and_no_near_one(
    served: Served, person_at: Callable[..., Any]
) -> None:
    rules(served, {"tool": "*", "verdict": "ask", "wait_seconds": 1})
    claude = Claude(served)
    claude.cwd = FOLDER
    claude.start()
    page, _watch = person_at(served, "approver")
    page.goto("/ui/rules/")
    assert set(CALLS) == {rule.name for rule in ALLOWING_RULES}
    for rule in ALLOWING_RULES:
        passes, near = CALLS[rule.name]
        switch_on = page.get_by_role("button", name=f"Switch on: {rule.mark}")
        switch_off = page.get_by_role("button", name=f"Switch off: {rule.mark}")
        switch_on.click()
        switch_off.wait_for()
        let_workers_read_rules()
        assert not is_asked(served, claude, passes), rule.name
        assert is_asked(served, claude, near), rule.name
        switch_off.click()
        switch_on.wait_for()
        let_workers_read_rules()
        assert is_asked(served, claude, passes), rule.name
    claude.end()
