"""The page of rules says what each rule means, and which are doubtful."""

from __future__ import annotations

import pytest

from coordinator.models import ToolRule
from coordinator.policy.rules.rule_checks import (
    pattern_sample_text_or_none,
    rule_in_terms_or_none,
    warnings_by_rule_number,
)
from coordinator.policy.rules.tool_rules import DecisionRule, load_saved_tool_rules
from dashboard.rules.question import deserialize_trial_rules, serialize_trial_rules
from dashboard.rules.sentences import build_rule_sentence_parts
from tests.people import signed_in

URL = "/ui/rules/"


def warn(*rules: DecisionRule) -> list[str]:
    return [warning for found in warnings_by_rule_number(rules).values() for warning in found]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("git log.*", ["a redirection into a file", "a second command", "a pipe", "a substitution"]),
        ("ls [^;|&]*", ["a redirection into a file", "a substitution"]),
        (r"git (status|diff)( [\w./-]+)*", []),
        ("git status", []),
        ("(", []),
    ],
)
def test_an_allow_pattern_that_fits_more_than_its_command_is_named(pattern: str, found: list[str]) -> None:
    warnings = warn(DecisionRule(1, "Bash", "allow", pattern))
    assert all(part in warnings[0] for part in found) if found else warnings == []
    assert warn(DecisionRule(1, "Bash", "deny", pattern), DecisionRule(2, "Read", "allow", pattern)) == []


def test_a_rule_that_an_earlier_one_decides_is_named() -> None:
    first = DecisionRule(1, "kind:command", "deny", "git push")
    assert "Rule 1 decides every call" in warn(first, DecisionRule(2, "Bash", "ask", "git push"))[0]
    assert warn(first, DecisionRule(2, "Bash", "ask", "git tag")) == []
    assert warn(first, DecisionRule(2, "Edit", "ask", "git push")) == []
    assert warn(DecisionRule(1, "*", "deny", is_off=True), DecisionRule(2, "Bash", "ask", "x")) == []
    everything = DecisionRule(1, "*", "deny", agents=("a",))
    assert warn(everything, DecisionRule(2, "Bash", "ask", "x")) == []
    assert "Rule 1" in warn(everything, DecisionRule(2, "Bash", "allow", "x", agents=("a",)))[0]
    # What allows everything still leaves out calls that lift a guard of their agent.
    assert warn(DecisionRule(1, "Bash", "allow"), DecisionRule(2, "Bash", "deny", "x")) == []


@pytest.mark.parametrize(
    "rule",
    [
        DecisionRule(1, "Bash", "allow", agents=()),
        DecisionRule(1, "Bash", "allow", touches="inside"),
        DecisionRule(1, "mcp__fs__read", "allow", touches="inside"),
        DecisionRule(1, "Bash", "allow", r"[^\s\S]x"),
    ],
)
def test_a_rule_that_can_never_match_is_named(rule: DecisionRule) -> None:
    assert len(warn(rule)) == 1


@pytest.mark.parametrize(
    ("touches", "is_wide"),
    [
        ("in /", True), ("in ~/*", True), ("in /home", True), ("reads /home/*", True), ("reads ~", True),
        ("reads *", True), ("in /srv", True), ("in /srv/shop", False), ("in ~/work/shop", False),
        ("reads inside\n!/", False), ("reads /var/log", False), ("writes *.log", False), ("", False),
    ],
)  # fmt: skip
def test_a_folder_that_holds_more_than_a_project_is_named(touches: str, is_wide: bool) -> None:
    warnings = warn(DecisionRule(1, "Bash", "allow", runs="cat", touches=touches))
    assert any("holds more than a project" in warning for warning in warnings) == is_wide
    assert warn(DecisionRule(1, "Bash", "deny", runs="cat", touches=touches)) == []


def test_rules_on_trial_are_carried_whole() -> None:
    rule = DecisionRule(1, "*", "deny", repeats="same call 5 times in 10 minutes", stops_turn=True)
    assert deserialize_trial_rules(serialize_trial_rules([rule])) == [rule]


def test_a_sample_fits_its_pattern_and_costs_little() -> None:
    assert pattern_sample_text_or_none(r"a(b|c)\d+[^x]?.$") == "ab1aa"
    assert pattern_sample_text_or_none("(?=x)") is None
    assert pattern_sample_text_or_none("(" * 500 + ")" * 500) is None
    assert pattern_sample_text_or_none("((((a{50}){50}){50}){50})") is None


@pytest.mark.parametrize(
    ("tool", "pattern", "runs", "touches"),
    [
        ("Bash", r"rm -rf|git push .*(--force|-f\b)", "rm -r -f\ngit push --force|-f", ""),
        ("kind:command", "^git (push|tag)", "git push|tag", ""),
        ("Read|Edit", r"(^|/)\.env", "", ".env*"),
        ("Read", r"(^|/)\.env$", "", ".env"),
    ],
)
def test_a_plain_pattern_can_be_said_in_terms(tool: str, pattern: str, runs: str, touches: str) -> None:
    changed = rule_in_terms_or_none(DecisionRule(1, tool, "deny", pattern, reason="Why."))
    assert changed is not None
    assert (changed.runs, changed.touches, changed.pattern, changed.reason) == (runs, touches, "", "Why.")


@pytest.mark.parametrize(
    ("verdict", "tool", "pattern"),
    [
        ("allow", "Bash", "git push"), ("deny", "*", "git push"), ("deny", "Bash", r"git\s*push"),
        ("deny", "Bash", "--force"), ("deny", "Read", "env"), ("deny", "Bash", "a.*b"), ("deny", "mcp__x__y", "z"),
    ],
)  # fmt: skip
def test_other_patterns_stay_as_they_are(verdict: str, tool: str, pattern: str) -> None:
    assert rule_in_terms_or_none(DecisionRule(1, tool, verdict, pattern)) is None


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (DecisionRule(1, "Bash", "allow", agents=("claude-code",), runs="git status -*\ngit diff -*",
                      touches="in /srv/shop"),
         "Allow claude-code to run git status and git diff anywhere in /srv/shop"),
        (DecisionRule(1, "*", "deny", touches="writes ~/.ssh"), "Do not allow every agent to touch ~/.ssh (writes)"),
        (DecisionRule(1, "*", "ask", reaches="*\n!localhost", program="codex"),
         "Ask a person before Codex may reach * except localhost"),
        (DecisionRule(1, "kind:command", "deny", "x"),
         "Do not allow every agent to run commands where its text fits a pattern"),
        (DecisionRule(1, "Edit|Write", "allow", agents=()), "Allow nobody to use Edit or Write"),
    ],
)  # fmt: skip
def test_a_rule_reads_as_a_sentence(rule: DecisionRule, sentence: str) -> None:
    assert " ".join(part.text for part in build_rule_sentence_parts(rule)) == sentence


def test_a_sentence_calls_agents_by_their_names() -> None:
    rule = DecisionRule(1, "Bash", "allow", agents=("agent.a", "agent.gone"))
    sentence = build_rule_sentence_parts(rule, {"agent.a": "The tester"})
    assert " ".join(part.text for part in sentence) == "Allow The tester or agent.gone to use Bash"


def fields(*rules: dict[str, str], do: str) -> dict[str, str]:
    posted = {"form-TOTAL_FORMS": str(len(rules)), "form-INITIAL_FORMS": "0", "do": do, "version": ""}
    for place, rule in enumerate(rules):
        posted |= {f"form-{place}-{name}": value for name, value in {"agents": "*", **rule}.items()}
    return posted


@pytest.mark.django_db
def test_a_rule_is_switched_off_and_kept() -> None:
    client = signed_in("approver")
    version = client.get(URL).context["version"]
    rule = {"tool": "Bash", "verdict": "allow", "pattern": "git status", "is_off": "on"}
    client.post(f"{URL}save/", fields(rule, do="save") | {"version": version})
    (saved,) = load_saved_tool_rules()
    assert (saved.is_off, saved.pattern) == (True, "git status")
    assert not saved.matches_call("Bash", "git status", None)
    # A server of an earlier version knows no rules that are off: this one must fit nothing there.
    assert ToolRule.objects.get().pattern == r"[^\s\S]git status"


@pytest.mark.django_db
def test_a_card_shows_the_sentence_and_the_reason_and_folds_the_pattern() -> None:
    client = signed_in("approver")
    version = client.get(URL).context["version"]
    rule = {"tool": "Bash", "verdict": "deny", "pattern": "rm -rf", "reason": "Nothing is deleted by force."}
    client.post(f"{URL}save/", fields(rule, do="save") | {"version": version})
    page = client.get(URL).content.decode()
    card = page[page.index('class="rule-sentence"') : page.index("Edit rule 1")]
    before, _, folded = card.partition("<details")
    assert "Nothing is deleted by force." in before
    assert "rm -rf" not in before
    assert "rm -rf" in folded
    assert "Replace pattern with programs and paths" in folded


@pytest.mark.django_db
def test_a_pattern_is_said_in_terms_on_the_page_and_saved_by_a_person_alone() -> None:
    client = signed_in("approver")
    rule = {"tool": "Bash", "verdict": "deny", "pattern": "git (push|tag)"}
    page = client.post(f"{URL}save/", fields(rule, do="in-terms-1"))
    assert page.context["cards"][0].rule.runs == "git push|tag"
    assert load_saved_tool_rules() == ()


@pytest.mark.django_db
def test_an_edited_list_is_tested_beside_the_editor_without_reading_the_page_again() -> None:
    client, headers = signed_in("approver"), {"HX-Request": "true"}
    rule = {"tool": "Bash", "verdict": "deny", "pattern": "git push"}
    page = client.post(f"{URL}save/", fields(rule, do="try"), headers=headers).content.decode()
    assert 'id="tried"' in page
    assert "<html" not in page
    answer = client.post(f"{URL}save/", fields(rule | {"pattern": "("}, do="try"), headers=headers)
    assert (answer.status_code, "cannot be read" in answer.content.decode()) == (422, True)
