"""What the rules say of a tool call, together with the MCP grants. Only reads; the door enforces, the page tries out.

Patterns are RE2 expressions: they take time in proportion to the text, whatever a person writes, so no pattern and
no command can hold up the door. Deny and ask look anywhere in the text; allow must match the whole of it, on one
line, so that `git status` does not let `git status; rm -rf ~` through.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import re2

from coordinator import access
from coordinator.access import UNKNOWN_SERVER, Policy, Verdict
from coordinator.errors import Invalid
from coordinator.models import ToolRule
from coordinator.models.rules import RuleVerdict

ALLOW, DENY, ASK, OBSERVE = (word.value for word in RuleVerdict)
STRICTEST_FIRST = (DENY, ASK, ALLOW, OBSERVE)
LONGEST_PATTERN = 2_000
MOST_RULES = 200
LONGEST_WAIT = 6 * 3600  # seconds


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as it decides: saved, or about to be. `number` is its place in the list, from 1."""

    number: int
    tool: str
    verdict: str
    pattern: str = ""
    agents: tuple[str, ...] | None = None
    reason: str = ""
    wait_seconds: int | None = None
    deny_at_deadline: bool = False

    def fits(self, tool: str, text: str, agent_id: str | None) -> bool:
        """Say whether the rule speaks of this call."""
        if self.agents is not None and agent_id not in self.agents:
            return False
        return _names(self.tool, tool) and (not self.pattern or self._matches(text))

    def _matches(self, text: str) -> bool:
        whole = self.verdict == ALLOW
        found = compiled(self.pattern, whole)
        return bool(found.fullmatch(text) if whole else found.search(text))


@dataclass(frozen=True, slots=True)
class Ruling:
    """What is to happen with a call, and why. `by` names what decided: `rule 3`, `grant 12`, nothing."""

    decision: str
    reason: str = ""
    by: str = ""
    wait_seconds: int | None = None
    deny_at_deadline: bool = False


NO_OPINION = Ruling(OBSERVE)


def check(rule: Rule) -> None:
    """Raise Invalid, in words for the person who wrote it, for a rule that could not be followed."""
    if not rule.tool.strip():
        raise Invalid(f"Rule {rule.number} names no tool. `*` means every tool.")
    if rule.verdict not in RuleVerdict.values:
        raise Invalid(f"Rule {rule.number}: {rule.verdict!r} is no verdict.")
    if len(rule.pattern) > LONGEST_PATTERN:
        raise Invalid(f"Rule {rule.number}: a pattern has at most {LONGEST_PATTERN} characters.")
    if rule.wait_seconds is not None and not 0 < rule.wait_seconds <= LONGEST_WAIT:
        raise Invalid(f"Rule {rule.number}: a person is asked for 1 to {LONGEST_WAIT} seconds.")
    try:
        compiled(rule.pattern, rule.verdict == ALLOW)
    except re2.error as problem:
        words = problem.args[0] if problem.args else problem
        words = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
        raise Invalid(
            f"Rule {rule.number}: the pattern cannot be read ({words}). Look-around and back-references are not known."
        ) from None


@lru_cache(maxsize=1024)
def compiled(pattern: str, whole: bool) -> Any:
    """Return the pattern ready to match. Raises re2.error. `.` stays within a line where the whole must match."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 4 << 20
    options.dot_nl = not whole
    return re2.compile(pattern, options)


@lru_cache(maxsize=1024)
def _tool_names(names: str) -> re.Pattern[str]:
    wanted = [name.strip() for name in re.split(r"[|,]", names) if name.strip()]
    return re.compile("|".join(fnmatch.translate(re.sub(r"\*+", "*", name)) for name in wanted) or r"(?!)")


def _names(names: str, tool: str) -> bool:
    return _tool_names(names).match(tool) is not None


def saved() -> tuple[Rule, ...]:
    """Return the rules in their order."""
    rows = ToolRule.objects.order_by("position", "id")
    return tuple(rule_of(row, number) for number, row in enumerate(rows, 1))


def rule_of(row: ToolRule, number: int) -> Rule:
    """Return one saved rule as it decides. Agents that cannot be read are nobody's."""
    agents = row.agents
    if agents is not None:
        agents = tuple(str(one) for one in agents) if isinstance(agents, list) else ()
    return Rule(
        number, row.tool, row.verdict, row.pattern, agents, row.reason, row.wait_seconds, row.deny_at_deadline
    )


def version(rules: Iterable[Rule]) -> str:
    """Return a short text that two lists of rules share exactly when they are the same."""
    packed = json.dumps([[getattr(rule, name) for name in Rule.__slots__] for rule in rules])
    return hashlib.sha256(packed.encode()).hexdigest()[:16]


def by_rules(rules: Sequence[Rule], tool: str, text: str, agent_id: str | None) -> Ruling:
    """Return what the first rule that fits says; no opinion where none does."""
    for rule in rules:
        try:
            fits = rule.fits(tool, text, agent_id)
        except re2.error:  # another program wrote a pattern that cannot be read: what is unclear is asked
            return Ruling(ASK, "A rule's pattern cannot be read.", f"rule {rule.number}")
        if fits:
            words = rule.reason or f"{RuleVerdict(rule.verdict).label} {rule.tool}".strip()
            return Ruling(
                rule.verdict, words, f"rule {rule.number}", rule.wait_seconds, rule.deny_at_deadline
            )
    return NO_OPINION


def by_access(verdict: Verdict) -> Ruling:
    """Return what the grants say of an MCP tool. Only a grant allows; a server nobody manages is let be."""
    if verdict.source == UNKNOWN_SERVER:
        return NO_OPINION
    by = f"grant {verdict.grant.id}" if verdict.grant else f"default policy of {verdict.server_id}"
    if not verdict.allowed:
        return Ruling(DENY, verdict.reason, by)
    return Ruling(ALLOW, verdict.reason, by) if verdict.grant else NO_OPINION


def stricter(one: Ruling, other: Ruling) -> Ruling:
    """Return the ruling that lets less happen."""
    return min(one, other, key=lambda ruling: STRICTEST_FIRST.index(ruling.decision))


def mcp_tool(tool: str) -> tuple[str, str] | None:
    """Return server and tool of `mcp__server__tool`, or None for a built-in tool."""
    server, separator, name = tool.removeprefix("mcp__").partition("__")
    return (server, name) if tool.startswith("mcp__") and separator and server and name else None


def server_names(server: str) -> list[str]:
    """Return the names by which a server may be known: one of a plugin is called `plugin_<plugin>_<server>`."""
    names = [server]
    if server.startswith("plugin_"):
        rest = server.removeprefix("plugin_")
        while "_" in rest:
            rest = rest.partition("_")[2]
            names.append(rest)
    return names


def known_verdict(verdicts: Mapping[str, Verdict], server: str) -> Verdict | None:
    """Return the verdict for the first of a server's names that is known, or None where none is."""
    for name in server_names(server):
        verdict = verdicts.get(name)
        if verdict is not None and verdict.source != UNKNOWN_SERVER:
            return verdict
    return None


# --- for pages that tell what would happen ----------------------------------------------------------------


def policy_for(calls: Iterable[tuple[str, str]], now: datetime) -> Policy:
    """Return the grants that speak of these tools and agents, read at once."""
    named = [(agent_id, place[0]) for tool, agent_id in calls if (place := mcp_tool(tool))]
    servers = {name for _, server in named for name in server_names(server)}
    return access.load({agent_id for agent_id, _ in named}, servers, now) if named else Policy()


def verdict_on(policy: Policy, tool: str, agent_id: str, now: datetime) -> Verdict | None:
    """Return what the grants say of a call, or None where they say nothing: a built-in tool, an unknown server."""
    place = mcp_tool(tool)
    if place is None:
        return None
    server, name = place
    verdicts = {one: policy.verdict(agent_id, one, name, now) for one in server_names(server)}
    return known_verdict(verdicts, server)


def together(ruling: Ruling, verdict: Verdict | None) -> Ruling:
    """Return the stricter of what the rules and the grants say, as the door does."""
    return stricter(ruling, by_access(verdict) if verdict else NO_OPINION)
