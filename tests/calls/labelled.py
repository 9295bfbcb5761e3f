"""Calls that people labelled harmless or dangerous, and what suggested rules make of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.dialects.dialect_registry import build_call_subject_text
from coordinator.policy.rules.call_text import copy_call_text_with_folder
from coordinator.policy.rules.tool_rules import ALLOW, DecisionRule, tool_ruling_or_no_opinion

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
        return copy_call_text_with_folder(
            build_call_subject_text("claude-code", self.tool, self.input), FOLDER
        )

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
        if tool_ruling_or_no_opinion(rules, call.tool, call.text, None, "claude-code").decision == ALLOW
    ]
