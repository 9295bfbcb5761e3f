"""The rules and grants of a trial: unsaved edits, or what is saved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.http import QueryDict

from coordinator.errors import UnprocessableRequest
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import MOST_RULES, DecisionRule
from coordinator.policy.suggestions.rule_trials import RecordedCallJudge
from dashboard.mcp import access_sheet

MOST_UNSAVED = 50  # rules
TOO_MANY = f"At most {MOST_UNSAVED} unsaved rules can be tested at once. Save some of them first."
UNREADABLE = "The rules to test could not be read. Go back to the rules and test them again."


@dataclass(frozen=True, slots=True)
class RulesOnTrial:
    """The rules and edits of grants on trial, and both in the form in which an HTML form sends them."""

    rules: tuple[DecisionRule, ...] | None = None  # None for the saved rules
    edits: tuple[GrantEdit, ...] = ()
    packed_rules: str = ""
    packed_edits: str = ""

    @property
    def has_unsaved_edits(self) -> bool:
        """Return whether the trial has rules or edits of grants that are not saved."""
        return self.rules is not None or bool(self.edits)

    def build_current_and_trial_judges(self, now: datetime) -> tuple[RecordedCallJudge, RecordedCallJudge]:
        """Return a judge of calls by what is saved, and one by what is on trial."""
        saved = tool_rules.load_saved_tool_rules()
        judge = RecordedCallJudge(saved, now)
        if not self.has_unsaved_edits:
            return judge, judge
        return judge, RecordedCallJudge(saved if self.rules is None else self.rules, now, self.edits)


def build_trial_of_rules(rules: Sequence[DecisionRule], edits: Sequence[GrantEdit] = ()) -> RulesOnTrial:
    """Return a trial of these rules and edits of grants.

    Raises UnprocessableRequest if too many of the rules are unsaved.
    """
    require_few_unsaved_rules(rules)
    return RulesOnTrial(
        tuple(rules),
        tuple(edits),
        serialize_trial_rules(rules),
        access_sheet.serialize_grant_edits(edits) if edits else "",
    )


def build_trial_of_grant_edits(edits: Sequence[GrantEdit]) -> RulesOnTrial:
    """Return a trial of these edits of grants under the saved rules."""
    return RulesOnTrial(None, tuple(edits), "", access_sheet.serialize_grant_edits(edits))


def has_unsaved_edits_in_form(form: QueryDict) -> bool:
    """Return whether a form contains rules or edits of grants that are not saved."""
    return bool(form.get("rules") or form.get("edits"))


def parse_rules_on_trial(form: QueryDict) -> RulesOnTrial:
    """Return the trial that a form describes. Raises UnprocessableRequest if it cannot be read."""
    rules, edits = form.get("rules", ""), form.get("edits", "")
    return RulesOnTrial(
        tuple(deserialize_trial_rules(rules)) if rules else None,
        tuple(access_sheet.deserialize_grant_edits(edits)) if edits else (),
        rules,
        edits,
    )


def serialize_trial_rules(rules: Sequence[DecisionRule]) -> str:
    return json.dumps([rule_fields_as_json_list(rule) for rule in rules], separators=(",", ":"))


def rule_fields_as_json_list(rule: DecisionRule) -> list[Any]:
    agents = None if rule.agents is None else list(rule.agents)
    return [
        rule.tool,
        rule.verdict,
        rule.pattern,
        agents,
        rule.reason,
        rule.wait_seconds,
        rule.deny_at_deadline,
        rule.program,
        rule.runs,
        rule.touches,
        rule.reaches,
        rule.unreadable,
        rule.ready_made,
        rule.is_off,
        rule.repeats,
        rule.stops_turn,
    ]


def deserialize_trial_rules(text: str) -> list[DecisionRule]:
    try:
        rows = json.loads(text)
        rules = [trial_rule_from_json_values(number, row) for number, row in enumerate(rows, 1)]
    except (ValueError, TypeError, RecursionError):
        raise UnprocessableRequest(UNREADABLE) from None
    if len(rules) > MOST_RULES:
        raise UnprocessableRequest(UNREADABLE)
    require_few_unsaved_rules(rules)
    for rule in rules:
        tool_rules.validate_tool_rule(rule)
    return rules


def require_few_unsaved_rules(rules: Sequence[DecisionRule]) -> None:
    """Raise UnprocessableRequest if more than MOST_UNSAVED rules differ from the saved ones.

    The number of a rule in the list is not compared.
    """
    if len(rules) > MOST_UNSAVED:
        saved = {replace(rule, number=0) for rule in tool_rules.load_saved_tool_rules()}
        if sum(replace(rule, number=0) not in saved for rule in rules) > MOST_UNSAVED:
            raise UnprocessableRequest(TOO_MANY)


def trial_rule_from_json_values(number: int, row: Any) -> DecisionRule:
    (
        tool,
        verdict,
        pattern,
        agents,
        reason,
        wait,
        deny,
        program,
        runs,
        touches,
        reaches,
        unreadable,
        ready_made,
        is_off,
        repeats,
        stops_turn,
    ) = row
    terms = (runs, touches, reaches, unreadable, ready_made)
    texts = [tool, verdict, pattern, reason, program, repeats, *terms, *(agents or ())]
    if not all(isinstance(text, str) for text in texts) or not (wait is None or isinstance(wait, int)):
        raise ValueError(UNREADABLE)
    agent_ids = None if agents is None else tuple(agents)
    return DecisionRule(
        number,
        tool,
        verdict,
        pattern,
        agent_ids,
        reason,
        wait,
        bool(deny),
        program,
        *terms,
        is_off=bool(is_off),
        repeats=repeats,
        stops_turn=bool(stops_turn),
    )
