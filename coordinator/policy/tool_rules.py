"""What the rules say of a tool call, together with the MCP grants. Only reads; the door enforces, the page tries out.

Patterns are RE2 expressions: they take time in proportion to the text, whatever a person writes, so no pattern and
no command can hold up the door. Deny and ask look anywhere in the text; allow must match the whole of it, on one
line, so that `git status` does not let `git status; rm -rf ~` through. Only an allow pattern that speaks of lines
(`\\n`, `(?s)`) fits a text of several. And what allows the tools of server `a` (`mcp__a__*`) allows none of `a__b`.
Deny and ask see every field of a call; allow covers the text it was written for (policy.call_text).
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import re2

from coordinator.errors import Invalid
from coordinator.mcp.names import PREFIX, beginning, begins_others
from coordinator.models import ToolRule
from coordinator.models.rules import RuleVerdict
from coordinator.policy import access, managed, tool_kinds
from coordinator.policy.access import UNKNOWN_SERVER, GrantRow, Policy, Verdict
from coordinator.policy.call_text import (
    Lines,
    Unclear,
    is_covered,
    lifts_guards,
    resolved_text,
    seen_texts,
    shown_text,
)
from coordinator.policy.managed import ManagedServers
from coordinator.sessions.agent_programs import AGENT_TITLES

if TYPE_CHECKING:
    from coordinator.policy.budgets import BudgetRow  # which builds on this

ALLOW, DENY, ASK, OBSERVE = (word.value for word in RuleVerdict)
STRICTEST_FIRST = (DENY, ASK, ALLOW, OBSERVE)
LONGEST_PATTERN = 2_000
MOST_RULES = 200
LONGEST_WAIT = 6 * 3600  # seconds
_WILD = re.compile(r"[*?\[]")
# A pattern's pieces: `\Q…\E`, an escape, a class ([^…] apart), the opening of a group with flags, any other character.
_PIECES = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\[\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\(\?[a-zA-Z]+|.",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as it decides: saved, or about to be. `number` is its place in the list, from 1.

    `program` is the agent program whose calls it is for (agent_programs.AGENT_TITLES), nothing for every one.
    """

    number: int
    tool: str
    verdict: str
    pattern: str = ""
    agents: tuple[str, ...] | None = None
    reason: str = ""
    wait_seconds: int | None = None
    deny_at_deadline: bool = False
    program: str = ""

    def fits(self, tool: str, text: str, agent_id: str | None, program: str = "", server: str = "") -> bool:
        """Say whether the rule matches this call of that agent program ("" where nobody knows which).

        `server` is what calls of its server's tools begin with (mcp.names.beginning), "" where that is not known.
        """
        if self.agents is not None and agent_id not in self.agents:
            return False
        if self.program and program != self.program:
            return False
        return self.names(tool, server) and self._fits_text(text)

    def names(self, tool: str, server: str = "") -> bool:
        """Say whether the rule names this tool. What lets a call go on names none of a server it does not speak of."""
        lets_go_on = self.verdict in {ALLOW, OBSERVE}
        if not lets_go_on and tool_kinds.unknown_kinds(self.tool):
            return True  # a later version or another program wrote it: whatever it means, it may be this tool
        return names_tool(self.tool, tool) and (not lets_go_on or _speaks_of(self.tool, tool, server))

    def may_fit(self, call: PartialCall, server: str = "") -> bool:
        """Say whether the rule may match a call of which not everything is known."""
        if self.agents is not None and call.agent_known and call.agent_id not in self.agents:
            return False
        if self.program and call.program not in {None, self.program}:
            return False
        if call.tool is not None and not self.names(call.tool, server):
            return False
        return call.text is None or self._fits_text(call.text)

    def _fits_text(self, text: str) -> bool:
        if self.verdict == ALLOW:
            return self._allows(text)
        if not self.pattern:
            return True
        # What lets a call go on looks at the text that names it alone.
        texts = (str(text),) if self.verdict == OBSERVE else seen_texts(text)
        return any(_is_in(seen, self.pattern) for seen in texts)

    def _allows(self, text: str) -> bool:
        if not self.pattern:
            return not lifts_guards(text)
        if not is_covered(text, self.pattern):
            return False
        shown = shown_text(text)
        if ("\n" in shown or "\r" in shown) and not speaks_of_lines(self.pattern):
            return False  # `ls [^;]*` is written for one line, and would match a command on the next
        expression = compiled(self.pattern, True)
        if not expression.fullmatch(shown):
            return False
        # `/srv/.*` is written for what is below /srv, where /srv/../etc is not.
        resolved = resolved_text(text)
        return resolved is None or r"\.\." in self.pattern or bool(expression.fullmatch(resolved))


@dataclass(frozen=True, slots=True)
class Ruling:
    """What is to happen with a call, and why. `by` names what decided: `rule 3`, `grant 12`, nothing.

    `ground` is that rule, grant or budget itself.
    """

    decision: str
    reason: str = ""
    by: str = ""
    wait_seconds: int | None = None
    deny_at_deadline: bool = False
    ground: Rule | GrantRow | BudgetRow | None = field(default=None, compare=False, repr=False)


NO_OPINION = Ruling(OBSERVE)


@dataclass(frozen=True, slots=True)
class PartialCall:
    """A call as far as it could be read: `tool` and `text` are None where they could not.

    `agent_id` counts only where it is known who calls. `program` is the agent program, None where it is not known.
    """

    tool: str | None = None
    text: str | None = None
    agent_id: str | None = None
    agent_known: bool = False
    program: str | None = None

    @property
    def is_whole(self) -> bool:
        known = self.tool, self.text, self.program
        return None not in known and self.agent_known


def check(rule: Rule) -> None:
    """Raise Invalid, in words for the person who wrote it, for a rule that could not be followed."""
    if not rule.tool.strip():
        raise Invalid(f"Rule {rule.number} names no tool. `*` means every tool.")
    if unknown := tool_kinds.unknown_kinds(rule.tool):
        known = ", ".join(f"{tool_kinds.PREFIX}{name}" for name in tool_kinds.KINDS)
        raise Invalid(f"Rule {rule.number}: there is no {unknown[0][:100]!r}. Known kinds of tools: {known}.")
    if rule.program and rule.program not in AGENT_TITLES:
        raise Invalid(f"Rule {rule.number}: there is no agent program {rule.program[:100]!r}.")
    if rule.verdict not in RuleVerdict.values:
        raise Invalid(f"Rule {rule.number}: {rule.verdict!r} is not a verdict.")
    if len(rule.pattern) > LONGEST_PATTERN:
        raise Invalid(f"Rule {rule.number}: a pattern may have at most {LONGEST_PATTERN} characters.")
    if rule.wait_seconds is not None and not 0 < rule.wait_seconds <= LONGEST_WAIT:
        raise Invalid(f"Rule {rule.number}: a person can be asked for 1 to {LONGEST_WAIT} seconds.")
    try:
        compiled(rule.pattern, rule.verdict == ALLOW)
    except re2.error as problem:
        words = problem.args[0] if problem.args else problem
        words = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
        raise Invalid(
            f"Rule {rule.number}: the pattern cannot be read ({words}). Look-around and back-references do not work."
        ) from None


@lru_cache(maxsize=1024)
def speaks_of_lines(pattern: str) -> bool:
    """Say whether an allow pattern is written for texts of several lines: it has a `\\n` to be met, or the flag `s`.

    Not the second half of an escaped backslash (`C:\\\\notes`), nor a `\\n` that a class shuts out (`[^\\n]`).
    """
    for piece in _PIECES.findall(pattern):
        if piece == r"\n" or (piece.startswith("(?") and "s" in piece):
            return True
        if piece[0] == "[" and piece[1] != "^" and r"\n" in re.findall(r"\\.", piece, re.DOTALL):
            return True
    return False


@lru_cache(maxsize=1024)
def compiled(pattern: str, whole: bool) -> Any:
    """Return the pattern ready to match. Raises re2.error. `.` stays within a line where the whole must match."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 4 << 20
    options.dot_nl = not whole
    return re2.compile(pattern, options)


def _is_in(seen: str, pattern: str) -> bool:
    """Say whether a deny or ask rule's pattern fits anywhere in a text of a call."""
    expression = compiled(f"(?m){pattern}" if isinstance(seen, Lines) else pattern, False)
    return isinstance(seen, Unclear) or bool(expression.search(seen))


@lru_cache(maxsize=1024)
def _tool_names(names: str) -> re.Pattern[str]:
    wanted = [fnmatch.translate(re.sub(r"\*+", "*", name)) for name in tool_kinds.tool_names(names)]
    return re.compile("|".join(wanted) or r"(?!)")


def _speaks_of(names: str, tool: str, server: str) -> bool:
    """Say whether one of the names that fit the tool speaks of its server, or of several at once (`mcp__*`, `*`)."""
    if not server:
        return True
    return any(
        names_tool(name, tool) and (plain.startswith(server) or "__" not in plain.removeprefix(PREFIX))
        for name in tool_kinds.tool_names(names)
        for plain in [_WILD.split(name, 1)[0]]
    )


def takes_in_others(names: str, server_ids: Iterable[str]) -> bool:
    """Say whether a star in `names` takes in tools of a registered server that they do not speak of."""
    known = list(server_ids)
    return any(begins_others(_WILD.split(name, 1)[0], known) for name in tool_kinds.tool_names(names))


def names_tool(names: str, tool: str) -> bool:
    """Say whether `names`, as rules write them (`Edit|Write`, `kind:command`, `mcp__github__*`), name this tool."""
    return _tool_names(names).match(tool) is not None


def saved() -> tuple[Rule, ...]:
    rows = ToolRule.objects.order_by("position", "id")
    return tuple(rule_of(row, number) for number, row in enumerate(rows, 1))


def rule_of(row: ToolRule, number: int) -> Rule:
    """Return one saved rule as it decides. Agents that cannot be read are nobody's."""
    agents = row.agents
    if agents is not None:
        agents = tuple(str(one) for one in agents) if isinstance(agents, list) else ()
    return Rule(
        number,
        row.tool,
        row.verdict,
        row.pattern,
        agents,
        row.reason,
        row.wait_seconds,
        row.deny_at_deadline,
        row.program,
    )


def version(rules: Iterable[Rule]) -> str:
    """Return a short text that two lists of rules share exactly when they are the same."""
    packed = json.dumps([[getattr(rule, name) for name in Rule.__slots__] for rule in rules])
    return hashlib.sha256(packed.encode()).hexdigest()[:16]


def by_rules(
    rules: Sequence[Rule],
    tool: str,
    text: str,
    agent_id: str | None,
    program: str = "",
    *,
    servers: Iterable[str] = (),
) -> Ruling:
    """Return what the first rule that fits says; no opinion where none does.

    `program` is the agent program that makes the call; a rule that names one fits no call of which it is not known.
    `servers` are the registered MCP servers, by which is known whose tool it is.
    """
    server = beginning(tool, servers)
    for rule in rules:
        try:
            fits = rule.fits(tool, text, agent_id, program, server)
        except re2.error:
            return _unreadable(rule)
        if fits:
            return _ruling_of(rule)
    return NO_OPINION


def _unreadable(rule: Rule) -> Ruling:
    """What another program wrote so that it cannot be read is asked."""
    return Ruling(ASK, "The rule cannot be read.", f"rule {rule.number}", ground=rule)


def _ruling_of(rule: Rule) -> Ruling:
    if rule.verdict not in RuleVerdict.values:
        return _unreadable(rule)
    words = rule.reason or f"{RuleVerdict(rule.verdict).label} {rule.tool}".strip()
    return Ruling(rule.verdict, words, f"rule {rule.number}", rule.wait_seconds, rule.deny_at_deadline, rule)


def strictest_possible(rules: Sequence[Rule], call: PartialCall, servers: Iterable[str] = ()) -> Ruling:
    """Return the strictest that the rules may say of a call of which not all is known."""
    worst, server = NO_OPINION, beginning(call.tool or "", servers)
    for rule in rules:
        try:
            fits = rule.may_fit(call, server)
        except re2.error:
            return stricter(worst, _unreadable(rule))
        if fits:
            worst = stricter(worst, _ruling_of(rule))
            if call.is_whole:
                break  # of the rules that fit, the first decides
    return worst


def by_access(verdict: Verdict) -> Ruling:
    """Return what the grants say of an MCP tool. Only a grant allows or asks."""
    if verdict.source == UNKNOWN_SERVER:
        return Ruling(DENY, f"{verdict.reason} Servers that are not registered are denied.", "grants")
    by = f"grant {verdict.grant.id}" if verdict.grant else f"default policy of {verdict.server_id}"
    if verdict.asks:
        # Who set it wants a person's word, so nobody's word is a no.
        return Ruling(ASK, verdict.reason, by, deny_at_deadline=True, ground=verdict.grant)
    if verdict.denied:
        return Ruling(DENY, verdict.reason, by, ground=verdict.grant)
    return Ruling(ALLOW, verdict.reason, by, ground=verdict.grant) if verdict.grant else NO_OPINION


def stricter(one: Ruling, other: Ruling) -> Ruling:
    """Return the ruling that lets less happen; of two that ask, one that denies at the deadline."""
    return min(one, other, key=_leniency)


def _leniency(ruling: Ruling) -> tuple[int, bool]:
    return STRICTEST_FIRST.index(ruling.decision), not ruling.deny_at_deadline


@dataclass(frozen=True, slots=True)
class Grants:
    """The registered MCP servers, and the grants that apply to some calls."""

    managed: ManagedServers
    policy: Policy

    def verdict(self, tool: str, agent_id: str, now: datetime) -> Verdict | None:
        """Return what the grants say of a call, or None where they say nothing."""
        return self.managed.verdict(self.policy, tool, agent_id, now)


def grants_for(calls: Iterable[tuple[str, str]], now: datetime) -> Grants:
    """Return the grants for these tools and agents, in one query."""
    servers_managed = managed.load(now)
    named = [(agent_id, servers_managed.places(tool)) for tool, agent_id in calls]
    servers = {server for _, places in named for server, _ in places}
    agents = {agent_id for agent_id, places in named if places}
    return Grants(servers_managed, access.load(agents, servers, now) if servers else Policy())


def together(ruling: Ruling, verdict: Verdict | None) -> Ruling:
    """Return the stricter of what the rules and the grants say, as the door does."""
    return stricter(ruling, by_access(verdict) if verdict else NO_OPINION)
