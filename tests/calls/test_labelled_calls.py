"""Suggested rules let harmless calls run, and none of those that are labelled dangerous, whatever was recorded."""

from __future__ import annotations

import pytest

from coordinator.demo.policy import RULES
from coordinator.policy.rules.tool_rules import DecisionRule
from coordinator.policy.suggestions.history import RecordedCall, WalkTimeLimit, subject_field_name_or_empty
from coordinator.policy.suggestions.rules_for_requests import build_wider_permanent_answer
from coordinator.policy.suggestions.search import MOST_SUGGESTED, SuggestionSearch
from dashboard.rules.recorded import READER
from tests.calls.labelled import (
    DANGEROUS,
    FOLDER,
    HARMLESS,
    LabelledCall,
    list_allowed_calls,
    read_labelled_calls,
)
from tests.claude_code.recorded import NOW, called

HARMLESS_CALLS, DANGEROUS_CALLS = read_labelled_calls(HARMLESS), read_labelled_calls(DANGEROUS)


def record(calls: list[LabelledCall], times: int) -> None:
    for call in calls:
        called(call.tool, *[call.input] * times, by="claude-code", folder=FOLDER)


def suggest_rules() -> list[DecisionRule]:
    search = SuggestionSearch.start_suggestion_search_over_history(READER)
    while not search.is_done:
        search.continue_suggestion_search(READER, (), NOW, WalkTimeLimit(60))
    assert len(search.tried) <= MOST_SUGGESTED
    return [one.suggested_rule(place) for place, one in enumerate(search.tried, 1)]


def test_there_are_three_hundred_labelled_calls_each_with_its_reason() -> None:
    calls = [*HARMLESS_CALLS, *DANGEROUS_CALLS]
    assert len(calls) >= 300
    assert min(len(HARMLESS_CALLS), len(DANGEROUS_CALLS)) >= 150
    assert all(call.why for call in calls)
    assert len({(call.tool, str(call.input)) for call in calls}) == len(calls)


def test_the_rules_of_the_demo_let_no_dangerous_call_run() -> None:
    assert [call.shown_text for call in list_allowed_calls(RULES, DANGEROUS_CALLS)] == []
    assert list_allowed_calls(RULES, HARMLESS_CALLS) != []


@pytest.mark.django_db
def test_none_of_the_labelled_dangerous_calls_passes_though_all_of_them_ran_before() -> None:
    record(HARMLESS_CALLS, 2)
    record(DANGEROUS_CALLS, 3)
    rules = suggest_rules()
    assert [call.shown_text for call in list_allowed_calls(rules, DANGEROUS_CALLS)] == []
    assert len(list_allowed_calls(rules, HARMLESS_CALLS)) >= 0.95 * len(HARMLESS_CALLS)


@pytest.mark.django_db
def test_nothing_is_suggested_from_dangerous_calls_alone_that_lets_one_run() -> None:
    record(DANGEROUS_CALLS, 3)
    rules = suggest_rules()
    assert [call.shown_text for call in list_allowed_calls(rules, DANGEROUS_CALLS)] == []


@pytest.mark.django_db
@pytest.mark.parametrize("call", HARMLESS_CALLS, ids=lambda call: call.shown_text[:60])
def test_no_wider_answer_to_a_harmless_call_lets_a_dangerous_one_run(call: LabelledCall) -> None:
    recorded = RecordedCall(
        0,
        "",
        call.tool,
        call.text,
        subject_field_name_or_empty(call.input, call.text),
        "",
        0,
        "claude-code",
    )
    wide = build_wider_permanent_answer(recorded, (), NOW)
    if wide is not None and wide.rules is not None:
        assert [one.shown_text for one in list_allowed_calls(wide.rules, DANGEROUS_CALLS)] == []
