"""What a person may add to the approval of a coding agent's call: another input, rules that shall stand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from coordinator import approvals
from coordinator.actions.tool_calls import PLUGIN
from coordinator.models import PermissionRequest

LONGEST_EDITABLE = 20_000  # characters; more is edited where the agent runs
KEPT_IN = {
    "session": "for this session",
    "localSettings": "in this project, for me",
    "projectSettings": "in this project, for everybody",
    "userSettings": "in all my projects",
}


@dataclass(frozen=True, slots=True)
class ToolCallEdit:
    """The text to edit (of one `field`, or the whole input as JSON), and the offered rules as number and words."""

    text: str | None
    field: str
    suggestions: list[tuple[int, str]]

    @property
    def rows(self) -> int:
        """Return how many lines the text field shows at first."""
        return min(12, max(2, (self.text or "").count("\n") + 2))


def edit_of(row: PermissionRequest) -> ToolCallEdit | None:
    """Return what can be added to the approval of `row`; None for requests of other programs."""
    if row.plugin_id != PLUGIN:
        return None
    given = approvals.subject_of(row).tool_input
    given = given if isinstance(given, dict) else {}
    field = "command" if isinstance(given.get("command"), str) else ""
    text = given[field] if field else json.dumps(given, indent=2, ensure_ascii=False)
    if len(text) > LONGEST_EDITABLE or approvals.needed(row) > 1:
        text = None
    offered = row.metadata.get("permission_suggestions") if isinstance(row.metadata, dict) else None
    words = [(number, words_of(one)) for number, one in enumerate(offered or []) if isinstance(one, dict)]
    return ToolCallEdit(text, field, words)


def words_of(suggestion: dict[str, Any]) -> str:
    """Return what a permission update of Claude Code does, in words; one we do not know as it stands."""
    where = KEPT_IN.get(str(suggestion.get("destination")), str(suggestion.get("destination") or "")).strip()
    kind, rules = suggestion.get("type"), suggestion.get("rules")
    if kind == "addRules" and isinstance(rules, list):
        names = ", ".join(_rule(one) for one in rules)
        return f"Always {suggestion.get('behavior', 'allow')} {names} {where}".strip()
    if kind == "setMode":
        return f"Switch to the mode {suggestion.get('mode')} {where}".strip()
    if kind == "addDirectories" and isinstance(suggestion.get("directories"), list):
        return f"Let it work in {', '.join(map(str, suggestion['directories']))} {where}".strip()
    return json.dumps(suggestion, ensure_ascii=False)


def _rule(rule: Any) -> str:
    if not isinstance(rule, dict):
        return str(rule)
    content = rule.get("ruleContent")
    return f"{rule.get('toolName')}({content})" if content else str(rule.get("toolName"))
