"""Ready-made rules that allow: they spare most harmless calls, and let nothing through that only looks harmless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.dialects.dialect_registry import build_call_subject_text
from coordinator.models import ToolRule
from coordinator.policy.rules import ready_made, tool_rules
from coordinator.policy.rules.call_text import copy_call_text_with_folder
from coordinator.policy.rules.ready_made_allowing import ALLOWING_RULES
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, OBSERVE, DecisionRule
from tests.calls.labelled import (
    DANGEROUS,
    FOLDER,
    HARMLESS,
    list_allowed_calls,
    read_labelled_calls,
)
from tests.claude_code.recorded import called
from tests.people import signed_in

RULES = [rule.build_rule(number) for number, rule in enumerate(ALLOWING_RULES, 1)]
CASES = Path(__file__).parents[1] / "data/cases/more-than-they-seem.jsonl"
DECEIVING_CALLS = [json.loads(line) for line in CASES.read_text().splitlines()]
URL = "/ui/rules/ready-made/{}/"
ALLOWED = {
    "reads-files": [
        ("Read", {"file_path": f"{FOLDER}/src/cart.py"}),
        ("Grep", {"pattern": "x", "path": "src"}),
        ("Grep", {"pattern": "x", "type": "py"}),
        ("Grep", {"pattern": "x", "glob": "*.ts"}),
        ("Glob", {"pattern": "**/*.md"}),
    ],
    "looks-around": [
        ("Bash", {"command": command})
        for command in (
            "git log --oneline -5 | head -3",
            "cat src/*.py | grep -n total",
            "cd src && ls -la && git diff HEAD~1 -- cart.py",
            "for file in a b; do echo done; done",
            "find . -name '*.py' -not -path './x/*' | wc -l",
            "git show HEAD:src/cart.py",
            "git diff -- . ':(exclude)package-lock.json'",
            "timeout 5 git status -sb",
            "bash -lc 'rg -n total src'",
        )
    ],
    "edits-files": [
        ("Edit", {"file_path": "src/cart.py", "old_string": "a", "new_string": "b"}),
        ("Write", {"file_path": f"{FOLDER}/tests/test_new.py", "content": "cat .env"}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: src/a.py\n@@\n-a\n+b\n*** End Patch"}),
    ],
    "runs-checks": [
        ("Bash", {"command": command})
        for command in (
            "pytest -q tests/test_cart.py::test_x 2>&1 | tail -20",
            "npm test -- --watch=false",
            "cargo test -- --nocapture",
            "uv run ruff check --fix src",
            "make -j4 test",
            "pytest --cov=src --cov-report=term-missing",
            "python -m pytest -x > build/test.log 2>&1",
            "cargo clippy -- -D warnings",
        )
    ],
    "commits": [("Bash", {"command": "git add -A && git commit -m 'See ~/.ssh' && git status"})],
    "asks-services": [
        ("Bash", {"command": "gh pr checks 12 | head -5"}),
        ("Bash", {"command": "docker ps -a"}),
    ],
    "reads-documentation": [("WebFetch", {"url": "https://docs.python.org/3/", "prompt": "x"})],
    "keeps-tasks": [("TodoWrite", {"todos": [{"content": "x", "status": "pending"}]})],
}


def decide(tool: str, tool_input: dict[str, Any], folder: str = FOLDER, rules: Any = RULES) -> str:
    text = copy_call_text_with_folder(build_call_subject_text("claude-code", tool, tool_input), folder)
    return tool_rules.tool_ruling_or_no_opinion(rules, tool, text, None, "claude-code").decision


def test_each_rule_can_be_saved_and_stays_within_what_the_editor_takes() -> None:
    for rule in RULES:
        tool_rules.validate_tool_rule(rule)
    assert set(ALLOWED) == {rule.name for rule in ALLOWING_RULES}


@pytest.mark.parametrize("name", ALLOWED)
def test_each_rule_allows_what_its_sentence_says(name: str) -> None:
    (rule,) = (rule for rule in RULES if rule.ready_made == name)
    assert [call for call in ALLOWED[name] if decide(*call, rules=[rule]) != ALLOW] == []


def test_no_call_that_does_more_than_it_seems_to_is_allowed_by_all_of_them_together() -> None:
    assert len(DECEIVING_CALLS) > 700
    assert [call for call in DECEIVING_CALLS if decide(call["tool"], call["input"]) == ALLOW] == []


def test_most_harmless_labelled_calls_are_allowed_and_no_dangerous_one() -> None:
    harmless = read_labelled_calls(HARMLESS)
    assert len(list_allowed_calls(RULES, harmless)) >= 0.95 * len(harmless)
    assert list_allowed_calls(RULES, read_labelled_calls(DANGEROUS)) == []


@pytest.mark.parametrize(
    ("runs", "command"),
    [
        ("git commit --no-verify", "git commit -s --no-verify -m x"),
        ("git log --output", "git log --pretty --output=x"),
        ("make --eval", "make -j --eval=x test"),
    ],
)
def test_an_option_that_may_stand_alone_hides_no_other_from_a_denial(runs: str, command: str) -> None:
    assert decide("Bash", {"command": command}, rules=[DecisionRule(1, "*", DENY, runs=runs)]) == DENY


@pytest.mark.parametrize("folder", ["/", "/home", "/home/ann", "/Users/ann", "/root", "/etc", "/tmp"])
def test_nothing_is_allowed_in_a_folder_that_is_no_project(folder: str) -> None:
    assert decide("Bash", {"command": "cat notes.txt"}, folder) == OBSERVE
    assert decide("Write", {"file_path": f"{folder}/notes.txt", "content": "x"}, folder) == OBSERVE
    assert decide("Read", {"file_path": f"{folder}/a/shop/notes.txt"}, f"{folder}/a/shop") == ALLOW


def test_a_working_directory_that_the_call_chooses_must_lie_in_that_of_the_agent() -> None:
    assert decide("exec_command", {"cmd": "cat notes.txt", "workdir": f"{FOLDER}/src"}) == ALLOW
    assert decide("exec_command", {"cmd": "cat notes.txt", "workdir": "/srv/payroll"}) == OBSERVE
    assert decide("exec_command", {"cmd": "cat notes.txt", "workdir": FOLDER}, "") == OBSERVE


def test_one_is_added_behind_what_denies_or_asks_about_some_calls_and_before_what_asks_about_all() -> None:
    listed = [
        DecisionRule(1, "Bash", ALLOW, "x"),
        DecisionRule(2, "*", DENY, "y"),
        DecisionRule(3, "*", ASK, runs="git push"),
        DecisionRule(4, "*", ASK),
    ]
    switched = ready_made.rules_with_ready_made_switched(listed, "looks-around", is_on=True)
    assert [rule.ready_made for rule in switched] == ["", "", "", "looks-around", ""]
    assert ready_made.rules_with_ready_made_switched(switched, "looks-around", is_on=False) == listed


@pytest.mark.django_db
def test_the_page_compares_recorded_calls_and_switches() -> None:
    for command in ("git status --short", "git push", "cat ~/.ssh/id_rsa"):
        called("Bash", {"command": command}, by="claude-code", folder=FOLDER)
    approver = signed_in("approver")
    compared = approver.get(URL.format("looks-around") + "calls/").content.decode()
    allowed, nearest = compared.split("Nearest calls that it would not allow")
    assert "git status --short" in allowed
    assert "git push" not in allowed
    assert "git push" in nearest
    assert "id_rsa" in nearest
    page = approver.post(URL.format("looks-around"), {"is_on": "1"}, follow=True).content.decode()
    assert "behind the rules that ask" in page
    assert "look around in its project" in page
    (saved,) = ToolRule.objects.all()
    assert (saved.verdict, saved.ready_made, saved.changed_by) == (ALLOW, "looks-around", "user:approver")
    assert decide("Bash", {"command": "ls"}, rules=tool_rules.load_saved_tool_rules()) == ALLOW


@pytest.mark.django_db
def test_a_viewer_compares_and_does_not_switch() -> None:
    viewer = signed_in("viewer")
    assert viewer.get(URL.format("edits-files") + "calls/").status_code == 200
    assert viewer.get(URL.format("publishes") + "calls/").status_code == 404
    assert viewer.post(URL.format("edits-files"), {"is_on": "1"}).status_code == 403
    assert not ToolRule.objects.exists()
