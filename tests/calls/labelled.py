"""Calls that people labelled harmless or dangerous, and what suggested rules make of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.dialects.dialect_registry import find_call_subject
from coordinator.policy.rules.call_text import call_text_in_working_folder
from coordinator.policy.rules.tool_rules import ALLOW, DecisionRule, decide_by_tool_rules

LABELLED_CALLS = Path(__file__).parents[1] / "data/cases/labelled-calls.jsonl"
FOLDER = "/srv/shop"
HARMLESS, DANGEROUS = "harmless", "dangerous"


@dataclass(frozen=True, slots=True)
class LabelledCall:
    """A call of Claude Code in FOLDER, and why it is harmless or dangerous."""

    label: str
    tool: str
    input: dict[str, Any]
    why: str

    @property
    def text(self) -> str:
        """The call as rules see it."""
        return call_text_in_working_folder(find_call_subject("claude-code", self.tool, self.input), FOLDER)

    @property
    def shown_text(self) -> str:
        return f"{self.tool}: {self.text}"


def read_labelled_calls(label: str) -> list[LabelledCall]:
    rows = map(json.loads, LABELLED_CALLS.read_text().splitlines())
    return [LabelledCall(**row) for row in rows if row["label"] == label]


def list_allowed_calls(rules: Sequence[DecisionRule], calls: Sequence[LabelledCall]) -> list[LabelledCall]:
    """Return the calls that the rules let run unasked, as the endpoint would judge them."""
    return [
        call
        for call in calls
        if decide_by_tool_rules(rules, call.tool, call.text, None, "claude-code").decision == ALLOW
    ]
