"""What is tried out: edited rules or grants that are not saved, or those that are in force."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.http import QueryDict

from coordinator.errors import Invalid
from coordinator.policy import tool_rules
from coordinator.policy.edits import Edit
from coordinator.policy.tool_rules import MOST_RULES, Rule
from coordinator.policy.trials import Judge
from dashboard.mcp import access_sheet

MOST_UNSAVED = 50  # rules
TOO_MANY = f"At most {MOST_UNSAVED} unsaved rules can be tested at once. Save some of them first."
UNREADABLE = "The rules to test could not be read. Go back to the rules and test them again."


@dataclass(frozen=True, slots=True)
class RulesOnTrial:
    """The rules (None: those that are saved) and the edits of grants on trial, and both as a form carries them."""

    rules: tuple[Rule, ...] | None = None
    edits: tuple[Edit, ...] = ()
    packed_rules: str = ""
    packed_edits: str = ""

    @property
    def is_open(self) -> bool:
        """Whether something is tried that does not hold yet."""
        return self.rules is not None or bool(self.edits)

    def judges(self, now: datetime) -> tuple[Judge, Judge]:
        """Return what judges calls by what holds now, and by what is on trial."""
        saved = tool_rules.saved()
        judge = Judge(saved, now)
        if not self.is_open:
            return judge, judge
        return judge, Judge(saved if self.rules is None else self.rules, now, self.edits)


def of_rules(rules: Sequence[Rule], edits: Sequence[Edit] = ()) -> RulesOnTrial:
    """Return the question what these rules, and these edits of grants, would do. Raises Invalid for too many."""
    _limit(rules)
    return RulesOnTrial(
        tuple(rules), tuple(edits), _packed(rules), access_sheet.packed(edits) if edits else ""
    )


def of_edits(edits: Sequence[Edit]) -> RulesOnTrial:
    """Return the question what these edits of grants would do under the saved rules."""
    return RulesOnTrial(None, tuple(edits), "", access_sheet.packed(edits))


def is_in(form: QueryDict) -> bool:
    """Say whether a form asks about rules or grants that are not saved."""
    return bool(form.get("rules") or form.get("edits"))


def of_form(form: QueryDict) -> RulesOnTrial:
    """Return the question that a form carries. Raises Invalid."""
    rules, edits = form.get("rules", ""), form.get("edits", "")
    return RulesOnTrial(
        tuple(_unpacked(rules)) if rules else None,
        tuple(access_sheet.unpacked(edits)) if edits else (),
        rules,
        edits,
    )


def _packed(rules: Sequence[Rule]) -> str:
    return json.dumps([_as_values(rule) for rule in rules], separators=(",", ":"))


def _as_values(rule: Rule) -> list[Any]:
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
    ]


def _unpacked(text: str) -> list[Rule]:
    try:
        rows = json.loads(text)
        rules = [_rule(number, row) for number, row in enumerate(rows, 1)]
    except (ValueError, TypeError, RecursionError):
        raise Invalid(UNREADABLE) from None
    if len(rules) > MOST_RULES:
        raise Invalid(UNREADABLE)
    _limit(rules)
    for rule in rules:
        tool_rules.check(rule)
    return rules


def _limit(rules: Sequence[Rule]) -> None:
    """Raise Invalid where too many of the rules are not saved, wherever in the list they stand."""
    if len(rules) > MOST_UNSAVED:
        saved = {replace(rule, number=0) for rule in tool_rules.saved()}
        if sum(replace(rule, number=0) not in saved for rule in rules) > MOST_UNSAVED:
            raise Invalid(TOO_MANY)


def _rule(number: int, row: Any) -> Rule:
    tool, verdict, pattern, agents, reason, wait, deny, program = row
    texts = [tool, verdict, pattern, reason, program, *(agents or ())]
    if not all(isinstance(one, str) for one in texts) or not (wait is None or isinstance(wait, int)):
        raise ValueError(UNREADABLE)
    named = None if agents is None else tuple(agents)
    return Rule(number, tool, verdict, pattern, named, reason, wait, bool(deny), program)
