"""What the command remembers of rules never lets a call run that a rule holds for certain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.client import offline_block_list as held
from coordinator.policy.rules.offline_blocking import build_offline_tool_lines
from coordinator.policy.rules.tool_rules import (
    ASK,
    DENY,
    DecisionRule,
    PartialCall,
    tool_ruling_or_no_opinion,
)

TOOLS = ["Bash", "Edit", "Write", "mcp__shop__drop", "mcp__till__read"]
RULES = st.builds(
    DecisionRule,
    number=st.just(1),
    tool=st.sampled_from(
        ["*", "Bash", "Edit|Write", "mcp__*", "mcp__shop__*, Edit", "B**h", "bash", "[BE]*", "W?ite"]
    ),
    verdict=st.sampled_from(["allow", "deny", "ask", "observe"]),
    pattern=st.sampled_from(["", "push", ".*"]),
    agents=st.sampled_from([None, ("shop",), ("till",)]),
    deny_at_deadline=st.booleans(),
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault of the rules
@given(st.lists(RULES, max_size=5), st.sampled_from(TOOLS), st.sampled_from(["git push", "ls"]))
def test_no_call_that_a_rule_holds_is_taken_for_free(rules: list[DecisionRule], tool: str, text: str) -> None:
    caller = PartialCall(agent_id="shop", agent_known=True)
    told = held.parse_block_list_or_none(
        json.dumps(build_offline_tool_lines(rules, caller, grants_deny=False))
    )
    assert told is not None
    ruling = tool_ruling_or_no_opinion(rules, tool, text, "shop")
    if ruling.decision in {ASK, DENY} and ruling.deny_at_deadline:
        assert held.is_tool_blocked_offline(told, tool)
        assert held.is_tool_blocked_offline(told, None)


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", '[["hold"]]', '[["keep", "*"]]', '[["hold", 1]]', "[" * 9999, "\0"]
)
def test_what_was_kept_and_cannot_be_read_holds_everything(tmp_path: Path, content: str) -> None:
    assert held.load_offline_block_list(str(tmp_path), "codex") is None
    (tmp_path / "held-codex.json").write_text(content)
    kept = held.load_offline_block_list(str(tmp_path), "codex")
    assert kept is not None
    assert held.is_tool_blocked_offline(kept, "Anything")


def test_what_is_told_is_kept_for_its_agent_alone_and_nonsense_is_not(tmp_path: Path) -> None:
    held.save_offline_block_list(str(tmp_path), "codex", '[["hold","Bash"]]')
    held.save_offline_block_list(str(tmp_path), "codex", "nonsense")
    assert held.load_offline_block_list(str(tmp_path), "codex") == [["hold", "Bash"]]
    assert held.load_offline_block_list(str(tmp_path), "gemini") is None
    assert (tmp_path / "held-codex.json").stat().st_mode & 0o077 == 0
