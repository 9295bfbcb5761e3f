"""Saving and checking a list of rules: none is lost, none is called idle that decides, none stands in the way."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coordinator.actions.policy import tool_rules as saving
from coordinator.models import KnownHost, PermissionRequest, ToolRule
from coordinator.policy.rules.rule_checks import warnings_by_rule_number
from coordinator.policy.rules.tool_rules import (
    DecisionRule,
    digest_tool_rules,
    load_saved_tool_rules,
    tool_ruling_or_no_opinion,
)
from coordinator.policy.suggestions.rule_trials import RecordedCallJudge
from dashboard.rules.recorded import READER
from tests.calls.test_new_hosts import ANN, RULE, fetch
from tests.claude_code.recorded import NOW, answered, called
from tests.claude_code.test_rules import form
from tests.people import signed_in

pytestmark = pytest.mark.django_db


def save(*rules: DecisionRule) -> None:
    seen = digest_tool_rules(load_saved_tool_rules())
    saving.replace_tool_rules(list(rules), seen_version=seen, actor=ANN, now=NOW + timedelta(days=3))


def test_a_rule_whose_tool_was_emptied_is_not_dropped_unsaid() -> None:
    save(DecisionRule(1, "Bash", "deny", "force"))
    client = signed_in("approver")
    answer = client.post("/ui/rules/save/", form({"tool": "", "pattern": "force"}, {"tool": "Read"}))
    assert (answer.status_code, "Name a tool." in answer.content.decode()) == (422, True)
    assert [rule.pattern for rule in load_saved_tool_rules()] == ["force"]
    dropped = {"tool": "", "pattern": "force", "DELETE": "on"}
    assert client.post("/ui/rules/save/", form(dropped, {"tool": "Read"})).status_code == 302
    assert [rule.tool for rule in load_saved_tool_rules()] == ["Read"]


def test_an_observing_rule_behind_one_that_allows_is_not_called_idle() -> None:
    rules = [DecisionRule(1, "Bash", "allow", "git status"), DecisionRule(2, "Bash", "observe", "git status")]
    assert tool_ruling_or_no_opinion(rules, "Bash", "git status; ls", None).by == "rule 2"
    assert warnings_by_rule_number(rules) == {}


def test_a_list_with_a_rule_that_nobody_can_read_is_replaced_by_one_about_new_hosts() -> None:
    ToolRule.objects.create(
        position=1, tool="Bash", verdict="deny", pattern="", runs="`", changed_at=NOW, changed_by="x"
    )
    save(RULE)
    assert load_saved_tool_rules() == (RULE,)


def test_a_host_is_known_from_the_first_approval_before_there_was_such_a_rule() -> None:
    answered("approved", "Bash", fetch("a.example"))
    (event_id,) = called("Bash", fetch("a.example"), at=NOW + timedelta(days=1))
    again = answered("approved", "Bash", {"command": "curl https://a.example/other"})
    PermissionRequest.objects.filter(pk=again.pk).update(approved_at=NOW + timedelta(days=2))
    KnownHost.objects.all().delete()
    save(RULE)
    (call,) = READER.load_recorded_calls_of_ids([event_id])
    assert RecordedCallJudge([RULE], NOW).decide_recorded_call(call).decision == "observe"
