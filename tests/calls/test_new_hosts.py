"""Hosts that nobody has approved in a project: asked about, and known from approvals alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from coordinator.actions.policy import known_hosts
from coordinator.actions.policy import tool_rules as saving
from coordinator.errors import UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import KnownHost
from coordinator.policy.rules import history_queries, tool_rules
from coordinator.policy.rules.call_history import HistoryNeeds, TimedCall
from coordinator.policy.rules.call_text import (
    CallText,
    build_call_text_from_input,
    copy_call_text_with_folder,
)
from coordinator.policy.rules.ready_made import BY_NAME
from coordinator.policy.rules.tool_rules import ASK, OBSERVE, DecisionRule
from coordinator.policy.suggestions.rule_trials import RecordedCallJudge
from dashboard.rules.recorded import READER
from tests.approvals.cards import served_form
from tests.calls.test_repetitions import served, switch_on  # noqa: F401 - a fixture
from tests.claude_code.double import Claude
from tests.claude_code.recorded import FOLDER, NOW, answered, called
from tests.claude_code.test_deciding import pending
from tests.served import Served

RULE = BY_NAME["new-hosts"].build_rule(1)
ANN = Actor("user", "ann")


def fetch(host: str) -> dict[str, str]:
    return {"command": f"curl -s https://{host}/x"}


def decide(tool_input: Any, rule: DecisionRule = RULE, folder: str = FOLDER) -> str:
    text = copy_call_text_with_folder(build_call_text_from_input(tool_input, "command"), folder)
    assert isinstance(text, CallText)
    moment = TimedCall("", "Bash", tool_input, NOW, folder=folder)
    needs = tool_rules.find_history_needs_of_rules([rule], "Bash", text, None)
    text = text.copy_with_call_history(history_queries.evaluate_history_conditions(needs, moment))
    return tool_rules.tool_ruling_or_no_opinion([rule], "Bash", text, None).decision


@pytest.mark.django_db
def test_a_host_is_new_until_a_person_approves_a_call_to_it_in_the_project() -> None:
    assert decide(fetch("a.example")) == ASK
    called("Bash", fetch("a.example"))  # it ran, and nobody approved it
    answered("denied", "Bash", fetch("a.example"))
    assert decide(fetch("a.example")) == ASK
    answered("approved", "Bash", fetch("a.example"))
    assert decide(fetch("a.example")) == OBSERVE
    assert decide(fetch("b.example")) == ASK
    assert decide({"command": "curl https://a.example/x https://b.example/y"}) == ASK
    assert decide(fetch("a.example"), folder="/srv/other") == ASK


@pytest.mark.django_db
def test_a_host_that_cannot_be_read_is_new_and_a_named_exception_is_not() -> None:
    assert decide({"command": "curl $URL"}) == ASK
    assert decide({"command": "ls"}) == OBSERVE
    assert decide(fetch("localhost")) == OBSERVE
    excepted = DecisionRule(1, "*", ASK, reaches="new hosts\n!*.example")
    assert decide(fetch("b.example"), excepted) == OBSERVE
    assert decide(fetch("b.test"), excepted) == ASK
    beside = DecisionRule(1, "*", ASK, reaches="new hosts\nbad.example")
    answered("approved", "Bash", fetch("bad.example"))
    assert decide(fetch("bad.example"), beside) == ASK, "it is named, known or not"


@pytest.mark.django_db
def test_an_approval_that_is_taken_back_takes_its_hosts_along() -> None:
    row = answered("approved", "Bash", fetch("a.example"))
    assert list(KnownHost.objects.values_list("folder", "host", "request_id", "approved_by")) == [
        (FOLDER, "a.example", row.request_id, "judge")
    ]
    KnownHost.objects.all().delete()
    known_hosts.save_hosts_of_approved_request(row, NOW)
    known_hosts.delete_hosts_of_revoked_request(row)
    assert decide(fetch("a.example")) == ASK


@pytest.mark.django_db
def test_what_was_approved_before_such_a_rule_is_known() -> None:
    answered("approved", "Bash", fetch("a.example"))
    answered("denied", "Bash", fetch("b.example"))
    KnownHost.objects.all().delete()
    seen = tool_rules.digest_tool_rules(())
    saving.replace_tool_rules([RULE], seen_version=seen, actor=ANN, now=NOW)
    assert list(KnownHost.objects.values_list("host", flat=True)) == ["a.example"]


@pytest.mark.django_db
def test_the_replay_knows_what_was_approved_by_then() -> None:
    ids = called("Bash", fetch("a.example"))
    answered("approved", "Bash", fetch("a.example"))
    later = called("Bash", fetch("a.example"), at=NOW + timedelta(hours=1))
    judge = RecordedCallJudge([RULE], NOW)
    newest, oldest = READER.load_recorded_calls_of_ids([*ids, *later])
    assert judge.decide_recorded_call(newest).decision == OBSERVE
    assert judge.decide_recorded_call(oldest).decision == ASK


@pytest.mark.parametrize("verdict", ["allow", "observe"])
def test_nothing_is_allowed_for_being_new(verdict: str) -> None:
    rule = DecisionRule(1, "Bash", verdict, runs="curl", reaches="new hosts\na.example")
    with pytest.raises(UnprocessableRequest, match="for rules that deny or ask"):
        tool_rules.validate_tool_rule(rule)
    text = copy_call_text_with_folder(
        build_call_text_from_input({"command": "curl https://a.example"}, "command"), FOLDER
    )
    assert tool_rules.tool_ruling_or_no_opinion([rule], "Bash", text, None).decision == OBSERVE
    assert not isinstance(
        tool_rules.tool_ruling_or_no_opinion([rule], "Bash", text, None).ground, DecisionRule
    )


@pytest.mark.django_db
def test_very_many_hosts_are_looked_up_in_one_statement(django_assert_num_queries: Any) -> None:
    hosts = frozenset(f"h{number}.example" for number in range(2_000))
    moment = TimedCall("", "Bash", {}, NOW, folder=FOLDER)
    with django_assert_num_queries(1):
        assert (
            history_queries.evaluate_history_conditions(HistoryNeeds(hosts=hosts), moment).known_hosts
            == frozenset()
        )


@pytest.mark.served
def test_a_person_approves_a_host_once_for_a_project(served: Served) -> None:  # noqa: F811
    approver = switch_on(served, "new-hosts")
    claude = Claude(served, wait="60")
    claude.prompt("Fetch it.")
    call = claude.new_call("Bash", fetch("api.example"))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(claude.before, call)
        (request_id,) = pending(served, claude)
        approver.post("/ui/approvals/decide/", data=served_form(approver, request_id, "approved"))
        assert answer.result()["permissionDecision"] == "allow"
    claude.ran(call)
    again = claude.new_call("WebFetch", {"url": "https://api.example/y", "prompt": "x"})
    assert claude.before(again) == {}
