"""Which rules and grants were in force for a decided call: from the decision's own audit entry, so signed with it.

An entry names the version of the whole list of rules; the list itself is found among the audited saves and what is
saved now. It counts only where its digest is that version, so nobody can put other rules in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from coordinator.models import AuditLog
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import DecisionRule

MOST_SAVES = 1_000  # audited saves of the rules that are looked through, newest first

RulesByVersion = Mapping[str, Sequence[DecisionRule]]


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """What a decision's entry says. None means that the entry does not say it: not each kind of decision needs all.

    `rule` and `grant` are the one that decided alone; `grants` all live ones of the agent on the tool and its server;
    `defaults` the default policy of each server that was meant.
    """

    rules_version: str | None
    rule: Mapping[str, Any] | None
    grant: Mapping[str, Any] | None
    grants: Sequence[Mapping[str, Any]] | None
    defaults: Mapping[str, Any] | None

    @property
    def policy_summary(self) -> str:
        """What was in force, in a few words for a table."""
        parts = []
        if self.rule:
            parts.append(
                f"rule {self.rule.get('number')}: {self.rule.get('verdict')} {self.rule.get('tool')}"
            )
        if self.grant:
            parts.append(describe_grant_in_force(self.grant))
        if self.rules_version:
            is_empty = self.rules_version == tool_rules.tool_rules_version(())
            parts.append("no rules" if is_empty else f"rules, version {self.rules_version[:8]}")
        if self.grants is not None:
            parts += [describe_grant_in_force(grant) for grant in self.grants] or ["no grant"]
        return " · ".join(parts) or "not recorded"

    def export_as_dict(self, rules_by_version: RulesByVersion) -> dict[str, Any]:
        """Return it all, with the rules themselves where they are still known."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.rules_version is None:
            return values
        rules_then = rules_by_version.get(self.rules_version)
        if rules_then is None:
            return values | {
                "rules": None,
                "rules_unknown": "The list of this version is no longer in the audit log.",
            }
        return values | {"rules": [asdict(rule) for rule in rules_then]}


def describe_grant_in_force(grant: Mapping[str, Any]) -> str:
    grant_name = ".".join(str(grant[name]) for name in ("server_id", "tool_name") if grant.get(name))
    return f"grant {grant.get('id')}: {grant.get('permission')} {grant_name}"


def read_policy_in_force(row: AuditLog) -> PolicyInForce:
    """Return what a decision's entry says was in force. What stands there in another form counts as not recorded."""
    metadata = row.metadata if isinstance(row.metadata, dict) else {}
    version, grants = metadata.get("rules_version"), metadata.get("grants_in_force")
    return PolicyInForce(
        version if isinstance(version, str) else None,
        dict_or_none(metadata.get("rule")),
        dict_or_none(metadata.get("grant")),
        [grant for grant in grants if isinstance(grant, dict)] if isinstance(grants, list) else None,
        dict_or_none(metadata.get("default_policies")),
    )


def dict_or_none(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None


def load_rules_by_version() -> RulesByVersion:
    """Return every list of rules that is known, by its digest: the saved one, and those in the audit log."""
    now = tool_rules.load_saved_tool_rules()
    return {tool_rules.tool_rules_version(rules): rules for rules in (*walk_audited_rules(), now, ())}


def walk_audited_rules() -> Iterator[Sequence[DecisionRule]]:
    saves = AuditLog.objects.filter(event_type="TOOL_RULES_SAVED").order_by("-pk")[:MOST_SAVES]
    for metadata in saves.values_list("metadata", flat=True):
        for name in ("before", "after"):
            rules = parse_audited_rules(metadata.get(name) if isinstance(metadata, dict) else None)
            if rules is not None:
                yield rules


def parse_audited_rules(stored: Any) -> Sequence[DecisionRule] | None:
    names = {field.name for field in fields(DecisionRule)}
    if not isinstance(stored, list) or not all(isinstance(rule_fields, dict) for rule_fields in stored):
        return None
    added = {"program", *tool_rules.TERM_FIELDS}  # which older saves did not name
    if not all(set(rule_fields) | added == names for rule_fields in stored):
        return None
    return [DecisionRule(**rule_fields) for rule_fields in stored]
