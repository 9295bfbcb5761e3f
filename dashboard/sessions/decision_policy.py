"""The rules and grants that were in force when a call was decided.

They are read from the signed audit entry of the decision. An entry names only the version of the list of
rules. The list itself is searched among the saved rules and in the audit entries of earlier saves. A list is
used only if its digest is that version, so nobody can substitute other rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from coordinator.models import AuditLog
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import DecisionRule

MOST_SAVES = 1_000  # audited saves of the rules that are searched, the latest first

RulesByVersion = Mapping[str, Sequence[DecisionRule]]


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """What an audit entry records about the policy of a decision.

    None means that it was not recorded. Not every kind of decision needs all of the fields.
    """

    rules_version: str | None
    rule: Mapping[str, Any] | None  # the rule that decided alone
    grant: Mapping[str, Any] | None  # the grant that decided alone
    grants: Sequence[Mapping[str, Any]] | None  # the agent's valid grants on the tool and its server
    defaults: Mapping[str, Any] | None  # the default policy of each server in question

    @property
    def policy_summary(self) -> str:
        """A short description of the policy in force, for a table."""
        parts = []
        if self.rule:
            parts.append(
                f"rule {self.rule.get('number')}: {self.rule.get('verdict')} {self.rule.get('tool')}"
            )
        if self.grant:
            parts.append(describe_grant_in_force(self.grant))
        if self.rules_version:
            is_empty = self.rules_version == tool_rules.digest_tool_rules(())
            parts.append("no rules" if is_empty else f"rules, version {self.rules_version[:8]}")
        if self.grants is not None:
            parts += [describe_grant_in_force(grant) for grant in self.grants] or ["no grant"]
        return " · ".join(parts) or "not recorded"

    def export_as_dict(self, rules_by_version: RulesByVersion) -> dict[str, Any]:
        """Return all fields, with the rules of `rules_version` if they are still known."""
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
    """Return the policy in force from a decision's audit entry.

    A value of another type counts as not recorded.
    """
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


def load_all_rules_by_version() -> RulesByVersion:
    """Return every known list of rules by its digest: the saved one, and those in the audit log."""
    now = tool_rules.load_saved_tool_rules()
    return {tool_rules.digest_tool_rules(rules): rules for rules in (*walk_audited_rules(), now, ())}


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
    added = {"program", *tool_rules.TERM_FIELDS}  # fields that older saves do not have
    if not all(set(rule_fields) | added == names for rule_fields in stored):
        return None
    return [DecisionRule(**rule_fields) for rule_fields in stored]
