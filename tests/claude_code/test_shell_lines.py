"""Shell lines of skills and slash commands are judged as the commands that they are, where no hook tells each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.claude_code.double import Answer, Claude
from tests.claude_code.test_deciding import AGENT_KEY, prepare, rules
from tests.served import Served, running

pytestmark = pytest.mark.served
LINES = {"lines": ["git status", "rm -rf build"], "files": ["/home/dev/shop/.claude/commands/look.md"]}
NONE = {"lines": [], "files": ["/home/dev/shop/.claude/commands/look.md"]}
UNKNOWN = {"lines": [], "files": [], "problem": "No file of look was found."}
HELD = {"held": True}
ASK_BASH = {"tool": "Bash", "verdict": "ask", "wait_seconds": 1, "reason": "Commands are asked."}
DENY_RM = {"tool": "Bash", "pattern": "rm -rf", "verdict": "deny", "reason": "No deletions."}
ALLOW_SKILLS = {"tool": "Skill", "verdict": "allow"}


@pytest.fixture(scope="module")
def served(served_template: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(served_template, tmp_path_factory.mktemp("skills") / "server") as server:
        prepare(server)
        yield server


@pytest.fixture
def claude(served: Served) -> Claude:
    rules(served)
    claude = Claude(served, key=AGENT_KEY, wait="100")
    claude.prompt("Get going.")
    return claude


def skill(claude: Claude, found: dict[str, Any] | None) -> Answer:
    """Call a skill; return the decision's fields."""
    call = claude.new_call("Skill", {"skill": "look"})
    return claude.before(call, **({} if found is None else {"signalbox_skill": found}))


def command(claude: Claude, found: dict[str, Any] | None) -> Answer:
    """Type a slash command; return the answer."""
    return claude.hook(
        "UserPromptExpansion",
        expansion_type="slash_command",
        command_name="look",
        command_args="",
        command_source="projectSettings",
        prompt="/look",
        **({} if found is None else {"signalbox_skill": found}),
    )


def asked(served: Served, claude: Claude) -> list[tuple[Any, ...]]:
    """Return status, input and words of what people were asked about the session."""
    return served.sql(
        "SELECT p.status, c.tool_input, p.justification FROM permission_requests p"
        " JOIN permission_context c ON c.request_id = p.request_id"
        " JOIN sessions s ON s.session_id = c.session_id WHERE s.executor_session_id = ?",
        (claude.session,),
    )


def rows(served: Served, claude: Claude) -> list[tuple[Any, ...]]:
    return served.sql(
        "SELECT e.event_type, e.tool_name, e.error FROM events e"
        " JOIN sessions s ON s.session_id = e.session_id WHERE s.executor_session_id = ?"
        " AND e.event_type IN ('pre_tool', 'post_tool') ORDER BY e.id",
        (claude.session,),
    )


def test_a_line_that_a_rule_denies_denies_the_skill_and_the_command(served: Served, claude: Claude) -> None:
    rules(served, DENY_RM, ALLOW_SKILLS)
    answer = skill(claude, LINES)
    assert answer["permissionDecision"] == "deny"
    assert "'rm -rf build'" in answer["permissionDecisionReason"]
    assert "No deletions." in answer["permissionDecisionReason"]
    blocked = command(claude, LINES)
    assert blocked["decision"] == "block"
    assert "No deletions." in blocked["reason"]
    assert not asked(served, claude)


def test_a_line_that_a_rule_asks_about_is_put_before_people_with_the_lines(
    served: Served, claude: Claude
) -> None:
    rules(served, ASK_BASH | {"pattern": "git"}, ALLOW_SKILLS)
    assert skill(claude, LINES)["permissionDecision"] == "ask"  # nobody answered: its own prompt asks
    assert "Nobody answered" in command(claude, LINES)["reason"]
    # What can only be blocked can still be approved, and typed again.
    assert {status for status, _, _ in asked(served, claude)} == {"expired", "pending"}
    for _, given, _ in asked(served, claude):
        assert json.loads(given)["shell_lines"] == LINES["lines"]
        assert json.loads(given)["files"] == LINES["files"]
    assert len(asked(served, claude)) == 2


@pytest.mark.parametrize("found", [NONE, HELD])
def test_nothing_is_asked_where_no_line_runs_or_each_has_a_hook(
    served: Served, claude: Claude, found: dict[str, Any]
) -> None:
    rules(served, ASK_BASH, ALLOW_SKILLS)
    assert skill(claude, found)["permissionDecision"] == "allow"
    assert command(claude, found) == {}
    assert not asked(served, claude)


@pytest.mark.parametrize(
    ("found", "why"), [(UNKNOWN, "No file of look was found."), (None, "does not say which")]
)
def test_unknown_lines_are_asked_about_where_a_rule_may_hold_or_deny_some(
    served: Served, claude: Claude, found: dict[str, Any] | None, why: str
) -> None:
    rules(served, {"tool": "Write", "verdict": "ask"}, ALLOW_SKILLS)
    assert skill(claude, found)["permissionDecision"] == "allow"
    assert command(claude, found) == {}
    rules(served, DENY_RM | {"wait_seconds": 1}, ALLOW_SKILLS)
    answer = skill(claude, found)
    assert answer["permissionDecision"] == "deny"  # what denies says no where nobody answers
    assert command(claude, found)["decision"] == "block"
    assert len(asked(served, claude)) == 2
    assert all(why in words for _, _, words in asked(served, claude))


def test_settings_for_newer_versions_alone_can_say_that_each_line_has_a_hook(
    served: Served, claude: Claude
) -> None:
    rules(served, ASK_BASH, ALLOW_SKILLS)
    claude.url += "&skill_hook=on"
    assert skill(claude, None)["permissionDecision"] == "allow"
    assert command(claude, None) == {}


def test_no_line_is_a_reason_to_allow_its_skill(served: Served, claude: Claude) -> None:
    rules(served, {"tool": "Bash", "verdict": "allow"}, {"tool": "Skill", "verdict": "deny"})
    assert skill(claude, LINES)["permissionDecision"] == "deny"
    rules(served, {"tool": "Bash", "verdict": "allow"})
    assert skill(claude, LINES) == {}


def test_a_command_and_a_line_that_run_end_on_the_timeline(served: Served, claude: Claude) -> None:
    rules(served, {"tool": "Bash", "verdict": "allow"})
    command(claude, LINES)
    claude.hook(
        "PreSkillShellCommand",
        tool_name="Bash",
        tool_input={"command": "git status"},
        tool_use_id="0:inner:preamble-0",
        command_name="look",
        invoked_by="user",
    )
    assert rows(served, claude) == [
        ("pre_tool", "Skill", None),
        ("post_tool", "Skill", None),
        ("pre_tool", "Bash", None),
        ("post_tool", "Bash", None),
    ]


def test_a_command_without_lines_is_no_call(served: Served, claude: Claude) -> None:
    command(claude, NONE)
    assert rows(served, claude) == []
