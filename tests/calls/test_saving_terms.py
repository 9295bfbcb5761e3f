"""Terms of rules are edited, tried out and saved on the page like the rest of a rule, on both engines."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.models import ToolRule
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import ALLOW, OBSERVE, DecisionRule
from tests.claude_code.test_rules import form
from tests.people import signed_in

pytestmark = pytest.mark.django_db
TERMS = {
    "runs": "git push\ngh release create",
    "touches": "writes .env",
    "reaches": "a.example",
    "unreadable": "ignore",
}


def save(do: str = "save", **rule: Any) -> Any:
    return signed_in("approver").post("/ui/rules/save/", form({"tool": "*", "ORDER": 1} | rule, do=do))


def test_terms_are_saved_and_shown_again() -> None:
    assert save(**TERMS | {"runs": "  git push \r\n\r\n gh release create "}).status_code == 302
    (rule,) = tool_rules.load_saved_tool_rules()
    assert {name: getattr(rule, name) for name in TERMS} == TERMS
    page = signed_in("viewer").get("/ui/rules/").content.decode()
    assert "gh release create</textarea>" in page


def test_terms_that_cannot_be_read_are_refused_and_stay_in_the_form() -> None:
    answer = save(runs="git push; rm x")
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "one command a line" in page
    assert "git push; rm x" in page
    assert not ToolRule.objects.exists()


def test_a_trial_of_terms_goes_on_with_them() -> None:
    page = save(do="try", verdict="deny", runs="git push").content.decode()
    assert "Effect of your changes" in page
    assert "git push" in page


def test_an_older_server_takes_no_allow_rule_in_terms_for_one_about_all_calls() -> None:
    assert save(verdict="allow", tool="Bash", runs="ls").status_code == 302
    row = ToolRule.objects.get()
    as_older = DecisionRule(1, row.tool, row.verdict, row.pattern)
    assert tool_rules.tool_ruling_or_no_opinion([as_older], "Bash", "rm -rf /", None).decision == OBSERVE
    (rule,) = tool_rules.load_saved_tool_rules()
    assert (rule.pattern, rule.runs, rule.verdict) == ("", "ls", ALLOW)


def test_a_call_is_tested_by_what_it_does() -> None:
    save(verdict="deny", runs="git push", reason="Never from here")
    viewer = signed_in("viewer")
    page = viewer.get("/ui/rules/", {"tool": "Bash", "about": "cd x && g'i't push"}).content.decode()
    assert page.count("Never from here") > 1
    quoted = viewer.get("/ui/rules/", {"tool": "Bash", "about": "echo git push"}).content.decode()
    assert "No rule matches." in quoted


def test_rules_without_terms_keep_the_version_that_they_had() -> None:
    plain = DecisionRule(1, "Bash", "deny", "x")
    assert len(tool_rules.decision_rule_as_value_list(plain)) == 9
    assert tool_rules.digest_tool_rules([plain]) != tool_rules.digest_tool_rules(
        [DecisionRule(1, "Bash", "deny", "x", runs="ls")]
    )
