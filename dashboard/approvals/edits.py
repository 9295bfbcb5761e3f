"""What a person may add to the approval of a coding agent's call: an edited input, permanent rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.actions.sessions.tool_calls import compute_offered_rule_digest, is_call_editable
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.models import PermissionRequest
from coordinator.policy.requests import agent_options, approvals

LONGEST_EDITABLE = 20_000  # characters; a longer input cannot be edited here


@dataclass(frozen=True, slots=True)
class ToolCallEdit:
    """The text to edit, and the rules that the agent offers.

    `text` is the value of `field`, or the whole input as JSON if `field` is empty; None if it cannot be
    edited. `suggestions` are the offered rules, each as a digest and a description.
    """

    text: str | None
    field: str
    suggestions: list[tuple[str, str]]

    @property
    def textarea_rows(self) -> int:
        return min(12, max(2, (self.text or "").count("\n") + 2))


def tool_call_edit_or_none(row: PermissionRequest, *, with_rules: bool) -> ToolCallEdit | None:
    """Return what a person can add to the approval of `row`; None if its program accepts no additions.

    Args:
        row: The request.
        with_rules: Whether the person may permit more calls than this one.
    """
    dialect, is_driven = DIALECTS.get(row.plugin_id), agent_options.is_driven_agent_request(row)
    is_agent = dialect is not None or is_driven
    if not is_agent and not is_call_editable(row):
        return None
    tool_input = approvals.request_subject(row).tool_input
    tool_input = tool_input if isinstance(tool_input, dict) else {}
    field = "command" if isinstance(tool_input.get("command"), str) else ""
    text = tool_input[field] if field else json.dumps(tool_input, indent=2, ensure_ascii=False)
    if approvals.required_approver_count(row) > 1:  # all must approve the same input
        return None
    in_words = describe_agent_option if dialect is None or is_driven else dialect.describe_offered_rule
    offered = approvals.find_offered_rules(row) if with_rules and is_agent else []
    rules = [(compute_offered_rule_digest(offered_rule), in_words(offered_rule)) for offered_rule in offered]
    is_shown = is_call_editable(row) and len(text) <= LONGEST_EDITABLE
    return ToolCallEdit(text if is_shown else None, field, rules)


def describe_agent_option(option: Mapping[str, Any]) -> str:
    """Return a description of the option, with the agent's own name for it quoted at the end."""
    name = str(option.get("name") or option.get("optionId"))
    return f"Let more calls than this one run, without asking here. The agent calls that “{name}”"
