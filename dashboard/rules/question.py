"""What is tried out: edited rules or grants that are not saved, or those that are in force."""

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
    """The rules (None: those that are saved) and the edits of grants on trial, and both as a form carries them."""

    rules: tuple[DecisionRule, ...] | None = None
    edits: tuple[GrantEdit, ...] = ()
    packed_rules: str = ""
    packed_edits: str = ""

    @property
    def has_unsaved_edits(self) -> bool:
        """Whether something is tried that does not hold yet."""
        return self.rules is not None or bool(self.edits)

    def build_current_and_trial_judges(self, now: datetime) -> tuple[RecordedCallJudge, RecordedCallJudge]:
        """Return what judges calls by what holds now, and by what is on trial."""
        saved = tool_rules.load_saved_tool_rules()
        judge = RecordedCallJudge(saved, now)
        if not self.has_unsaved_edits:
            return judge, judge
        return judge, RecordedCallJudge(saved if self.rules is None else self.rules, now, self.edits)


def build_trial_of_rules(rules: Sequence[DecisionRule], edits: Sequence[GrantEdit] = ()) -> RulesOnTrial:
    """Return the question what these rules, and these edits of grants, would do.

    Raises UnprocessableRequest for too many.
    """
    require_few_unsaved_rules(rules)
    return RulesOnTrial(
        tuple(rules),
        tuple(edits),
        serialize_trial_rules(rules),
        access_sheet.serialize_grant_edits(edits) if edits else "",
    )


def build_trial_of_grant_edits(edits: Sequence[GrantEdit]) -> RulesOnTrial:
    """Return the question what these edits of grants would do under the saved rules."""
    return RulesOnTrial(None, tuple(edits), "", access_sheet.serialize_grant_edits(edits))


def form_has_unsaved_rules(form: QueryDict) -> bool:
    """Say whether a form asks about rules or grants that are not saved."""
    return bool(form.get("rules") or form.get("edits"))


def parse_trial_form(form: QueryDict) -> RulesOnTrial:
    """Return the question that a form carries. Raises UnprocessableRequest."""
    rules, edits = form.get("rules", ""), form.get("edits", "")
    return RulesOnTrial(
        tuple(deserialize_trial_rules(rules)) if rules else None,
        tuple(access_sheet.deserialize_grant_edits(edits)) if edits else (),
        rules,
        edits,
    )


def serialize_trial_rules(rules: Sequence[DecisionRule]) -> str:
    return json.dumps([trial_rule_as_json_values(rule) for rule in rules], separators=(",", ":"))


def trial_rule_as_json_values(rule: DecisionRule) -> list[Any]:
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
    """Raise UnprocessableRequest where too many of the rules are not saved, wherever in the list they stand."""
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
