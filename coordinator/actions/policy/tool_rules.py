"""Saving of the rules: the whole list at once, in the order that its editor saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.policy import known_hosts
from coordinator.engine.locks import lock_table_against_writes
from coordinator.errors import Conflict, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import ToolRule
from coordinator.policy.rules import terms
from coordinator.policy.rules import tool_rules as rules
from coordinator.policy.rules.call_history import NEW_HOSTS
from coordinator.policy.rules.tool_rules import DecisionRule

CHANGED_MEANWHILE = (
    "Somebody else has saved the rules since you opened this page. Nothing was changed. Reload the page."
)


def replace_tool_rules(
    wanted_rules: Sequence[DecisionRule], *, seen_version: str, actor: Actor, now: datetime
) -> None:
    """Put `wanted_rules` in place of the saved rules. `seen` is the version that the editor started from.

    Raises UnprocessableRequest for a rule that cannot be followed, Conflict where somebody else saved meanwhile.
    """
    if len(wanted_rules) > rules.MOST_RULES:
        raise UnprocessableRequest(f"There may be at most {rules.MOST_RULES} rules.")
    for rule in wanted_rules:
        rules.validate_tool_rule(rule)
    with transaction.atomic():
        lock_table_against_writes("tool_rules")  # two editors of an empty list have no row to meet at
        before = rules.load_saved_tool_rules()
        if rules.digest_tool_rules(before) != seen_version:
            raise Conflict(CHANGED_MEANWHILE)
        if rules.digest_tool_rules(wanted_rules) == seen_version:
            return
        ToolRule.objects.all().delete()
        ToolRule.objects.bulk_create([build_tool_rule(rule, actor, now) for rule in wanted_rules])
        if has_rule_about_new_hosts(wanted_rules) and not has_rule_about_new_hosts(before):
            known_hosts.save_hosts_of_earlier_approvals(now)
        audit.record_audit_entry(
            "TOOL_RULES_SAVED",
            actor=actor,
            target="tool_rules",
            result="success",
            metadata={
                "before": [asdict(rule) for rule in before],
                "after": [asdict(rule) for rule in wanted_rules],
            },
            now=now,
        )


def has_rule_about_new_hosts(listed: Sequence[DecisionRule]) -> bool:
    """Say whether a rule is about new hosts; one whose terms nobody can read is not."""
    return any(NEW_HOSTS in terms.split_term_lines(rule.reaches) for rule in listed)


def try_add_tool_denial_rule(tool: str, reason: str, *, actor: Actor, now: datetime) -> bool:
    """Put a rule that denies the tool, by its name in calls, before all others; return whether there was none yet.

    Raises UnprocessableRequest where there are as many rules as there may be.
    """
    with transaction.atomic():
        lock_table_against_writes("tool_rules")
        saved = rules.load_saved_tool_rules()
        denial = DecisionRule(1, tool, rules.DENY, reason=reason)
        if any(replace(rule, number=1, reason=reason) == denial for rule in saved):
            return False
        wanted_rules = [denial, *(replace(rule, number=rule.number + 1) for rule in saved)]
        replace_tool_rules(wanted_rules, seen_version=rules.digest_tool_rules(saved), actor=actor, now=now)
    return True


def build_tool_rule(rule: DecisionRule, actor: Actor, now: datetime) -> ToolRule:
    lets_go_on = rule.verdict in {rules.ALLOW, rules.OBSERVE}
    # A server of an earlier version that runs in parallel knows no terms, and nothing of repetitions.
    is_by_terms_alone = not rule.pattern and (bool(rule.repeats) or (rule.has_terms and lets_go_on))
    pattern = f"{rules.TERMS_ALONE}{rule.pattern}" if rule.is_off and lets_go_on else rule.pattern
    return ToolRule(
        position=rule.number,
        tool=rule.tool,
        pattern=rules.TERMS_ALONE if is_by_terms_alone else pattern,
        verdict=rule.verdict,
        agents=None if rule.agents is None else list(rule.agents),
        reason=rule.reason,
        wait_seconds=rule.wait_seconds,
        deny_at_deadline=rule.deny_at_deadline,
        program=rule.program,
        runs=rule.runs,
        touches=rule.touches,
        reaches=rule.reaches,
        unreadable=rule.unreadable,
        ready_made=rule.ready_made,
        is_off=rule.is_off,
        repeats=rule.repeats,
        stops_turn=rule.stops_turn,
        changed_at=now,
        changed_by=str(actor),
    )
