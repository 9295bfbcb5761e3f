"""Definition of a ready-made rule: a sentence, and the rule that its switch adds to the list."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coordinator.models.rules import RuleVerdict
from coordinator.policy.rules.tool_rules import DecisionRule


@dataclass(frozen=True, slots=True)
class ReadyMadeRule:
    """A rule to switch on. `mark` is its sentence on a card, and in the audit log.

    `sentence` completes "Ask a person before an agent …", or, of one that allows, "An agent may …".
    `caution` says what else is let through by one that allows.
    """

    name: str
    sentence: str
    mark: str
    runs: str = ""
    touches: str = ""
    reaches: str = ""
    unreadable: str = ""
    repeats: str = ""
    tool: str = "*"
    verdict: str = RuleVerdict.ASK.value
    caution: str = ""

    @property
    def is_allowing(self) -> bool:
        return self.verdict == RuleVerdict.ALLOW

    def has_same_terms_as_rule(self, rule: DecisionRule) -> bool:
        """Say whether a rule of the list is about what this one is about: nobody edited that."""
        names = ("tool", "verdict", "runs", "touches", "reaches")
        return not rule.pattern and all(getattr(rule, name) == getattr(self, name) for name in names)

    def build_rule(self, number: int) -> DecisionRule:
        """Return the rule that the switch adds to the list."""
        return DecisionRule(
            number,
            self.tool,
            self.verdict,
            reason=f"Ready-made: {self.mark[0].lower()}{self.mark[1:]}",
            runs=self.runs,
            touches=self.touches,
            reaches=self.reaches,
            unreadable=self.unreadable,
            ready_made=self.name,
            repeats=self.repeats,
        )


def dedent_and_join_continuation_lines(text: str) -> str:
    """Return the lines of a text without what they are indented by. One that ends with `|` goes on in the next."""
    joined = re.sub(r"\|\s*\n\s*", "|", text)
    return "\n".join(line.strip() for line in joined.splitlines() if line.strip())
