"""Acceptance of suggested rules and grants, and permanent dismissal of suggestions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.policy import grants, tool_rules
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor
from coordinator.models import DismissedSuggestion
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.rules import tool_rules as rules
from coordinator.policy.rules.tool_rules import DecisionRule
from coordinator.policy.suggestions.search import insert_rules_after_last_deny

ALREADY_THERE = "This rule already exists."


def accept_suggestions(
    added: Sequence[DecisionRule],
    edits: Sequence[GrantEdit],
    *,
    seen_version: str,
    actor: Actor,
    now: datetime,
) -> list[DecisionRule]:
    """Save suggested rules, behind the last rule that denies, and suggested grants: all of them or none.

    Returns the added rules with their numbers. `seen` is the version of the rules that the person saw. Raises Conflict
    where one of the rules exists, and what saving rules and grants raises.
    """
    with transaction.atomic():
        saved = rules.load_saved_tool_rules()
        existing = {replace(rule, number=0, reason="") for rule in saved}
        if any(replace(rule, number=0, reason="") in existing for rule in added):
            raise Conflict(ALREADY_THERE)
        wanted_rules = insert_rules_after_last_deny(saved, added)
        if added:
            tool_rules.replace_tool_rules(wanted_rules, seen_version=seen_version, actor=actor, now=now)
        if edits:
            grants.apply_grant_edits(list(edits), actor=actor, now=now)
    plain = {replace(rule, number=0) for rule in added}
    return [rule for rule in wanted_rules if replace(rule, number=0) in plain]


def dismiss_suggestion(digest: str, label: str, *, actor: Actor, now: datetime) -> None:
    """Note that a suggestion is not to be made again. Dismissing it a second time changes nothing."""
    with transaction.atomic():
        _, is_new = DismissedSuggestion.objects.get_or_create(
            digest=digest, defaults={"label": label, "dismissed_by": str(actor), "dismissed_at": now}
        )
        if is_new:
            audit.record_audit_entry(
                "SUGGESTION_DISMISSED",
                actor=actor,
                target=digest,
                result="success",
                reason=label,
                metadata={"digest": digest, "label": label},
                now=now,
            )


def restore_dismissed_suggestions(*, actor: Actor, now: datetime) -> int:
    """Let dismissed suggestions be made again; return how many there were."""
    with transaction.atomic():
        labels = list(DismissedSuggestion.objects.values_list("label", flat=True))
        DismissedSuggestion.objects.all().delete()
        if labels:
            audit.record_audit_entry(
                "SUGGESTIONS_RESTORED",
                actor=actor,
                target="dismissed_suggestions",
                result="success",
                metadata={"labels": labels},
                now=now,
            )
    return len(labels)
