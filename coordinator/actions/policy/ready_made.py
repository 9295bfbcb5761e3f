"""Switching of ready-made rules: one edit of the list of rules, and its audit entry."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.policy import tool_rules
from coordinator.errors import NotFound
from coordinator.identity.actors import Actor
from coordinator.policy.rules import ready_made
from coordinator.policy.rules import tool_rules as rules


def set_ready_made_rule_enabled(name: str, *, is_on: bool, actor: Actor, now: datetime) -> None:
    """Put a ready-made rule at the top of the list, or take it out; nothing where it is so already.

    Raises NotFound for a name that there is not, Conflict where somebody else saved the rules meanwhile.
    """
    if name not in ready_made.BY_NAME:
        raise NotFound("There is no such ready-made rule.")
    with transaction.atomic():
        saved = rules.load_saved_tool_rules()
        wanted_rules = ready_made.rules_with_ready_made_switched(saved, name, is_on=is_on)
        if wanted_rules == list(saved):
            return
        tool_rules.replace_tool_rules(
            wanted_rules, seen_version=rules.digest_tool_rules(saved), actor=actor, now=now
        )
        audit.record_audit_entry(
            "READY_MADE_RULE_SWITCHED",
            actor=actor,
            target=name,
            result="success",
            reason=f"{'On' if is_on else 'Off'}: {ready_made.BY_NAME[name].mark}",
            metadata={"name": name, "is_on": is_on},
            now=now,
        )
