""" "Always allow this" weakens no denial, also one that depends on the folder or on earlier calls."""

from __future__ import annotations

import pytest

from coordinator.dialects.dialect_registry import build_call_subject_text
from coordinator.policy.rules.call_history import CallHistory, parse_repetition_condition
from coordinator.policy.rules.call_text import CallText
from coordinator.policy.rules.tool_rules import (
    DecisionRule,
    load_saved_tool_rules,
    tool_ruling_or_no_opinion,
)
from tests.approvals.test_always import accept, asked, decision, page_of, rules

pytestmark = pytest.mark.django_db
REPEATED = "same call 2 times in 10 minutes"


def test_a_denial_for_another_folder_is_not_weakened(signed_in) -> None:
    rules(
        DecisionRule(1, "Bash", "ask", runs="make", touches="in /srv/shop"),
        DecisionRule(2, "Bash", "deny", runs="make deploy", touches="in /srv/prod"),
    )
    assert decision("make deploy", folder="/srv/prod") == "deny"
    accept(signed_in(), asked("make deploy"))
    assert decision("make deploy", folder="/srv/prod") == "deny", load_saved_tool_rules()


def test_a_denial_outside_is_not_weakened(signed_in) -> None:
    rules(
        DecisionRule(1, "Bash", "ask", touches="inside"),
        DecisionRule(2, "Bash", "deny", touches="writes outside"),
    )
    assert decision("touch /srv/shop/x", folder="/srv/other") == "deny"
    accept(signed_in(), asked("touch /srv/shop/x"))
    assert decision("touch /srv/shop/x", folder="/srv/other") == "deny", load_saved_tool_rules()


def test_a_denial_of_repetitions_is_not_weakened(signed_in) -> None:
    rules(
        DecisionRule(1, "*", "ask", reaches="new hosts"),
        DecisionRule(2, "*", "deny", repeats="same call 5 times in 10 minutes"),
    )
    accept(signed_in(), asked("curl https://a.example/x"))
    assert [rule.verdict for rule in load_saved_tool_rules()] == ["ask", "deny"]


def test_a_denial_for_others_leaves_the_place_before_what_asks(signed_in) -> None:
    rules(
        DecisionRule(1, "Bash", "ask", runs="make", touches="in /srv/shop"),
        DecisionRule(2, "Bash", "deny", "force", agents=("other",)),
        DecisionRule(3, "Write", "deny"),
    )
    accept(signed_in(), asked("make deploy"))
    assert [rule.verdict for rule in load_saved_tool_rules()] == ["allow", "ask", "deny", "deny"]


def test_what_asks_about_the_text_alone_leaves_the_place_before_it(signed_in) -> None:
    rules(
        DecisionRule(1, "Bash", "ask", runs="make"),
        DecisionRule(2, "Bash", "deny", touches="writes outside"),
    )
    accept(signed_in(), asked("make deploy"))
    assert [rule.verdict for rule in load_saved_tool_rules()] == ["allow", "ask", "deny"]


def test_a_denial_of_another_program_leaves_the_place_before_what_asks(signed_in) -> None:
    rules(
        DecisionRule(1, "Bash", "ask", runs="make", touches="in /srv/shop"),
        DecisionRule(2, "Bash", "deny", runs="rm", touches="deletes outside"),
    )
    accept(signed_in(), asked("make deploy"))
    assert [rule.verdict for rule in load_saved_tool_rules()] == ["allow", "ask", "deny"]


@pytest.mark.parametrize(
    "saved",
    [
        [DecisionRule(1, "*", "ask", repeats=REPEATED), DecisionRule(2, "Bash", "deny", "force")],
        [DecisionRule(1, "*", "ask", repeats=REPEATED), DecisionRule(2, "Write", "deny")],
        [DecisionRule(1, "*", "ask", repeats=REPEATED)],
        [DecisionRule(1, "Write", "ask", repeats=REPEATED), DecisionRule(2, "Bash", "deny", "force")],
        [DecisionRule(1, "Bash", "deny", repeats=REPEATED)],
    ],
)
def test_the_page_says_which_rule_goes_on_to_decide_repetitions(signed_in, saved: list[DecisionRule]) -> None:
    rules(*saved)
    row, browser = asked("ls -l"), signed_in()
    offer = browser.get(page_of(row)).content.decode()
    page = accept(browser, row)
    assert any(rule.verdict == "allow" for rule in load_saved_tool_rules())
    text = build_call_subject_text("claude-code", "Bash", {"command": "ls -l"})
    assert isinstance(text, CallText)
    reached = CallHistory(frozenset(filter(None, [parse_repetition_condition(REPEATED)])))
    text = text.copy_with_call_history(reached)
    found = tool_ruling_or_no_opinion(load_saved_tool_rules(), "Bash", text, "coder", "claude-code")
    still = {"ask": "asks", "deny": "denies"}.get(found.decision)
    assert (still is None) == ("allows such calls from now on" in page)
    if still is not None:
        exception = f"rule 1 still {still} ({REPEATED})."
        assert f"Such calls are not always allowed: {exception}" in offer
        assert f"allows such calls, but {exception} The request is approved." in page
