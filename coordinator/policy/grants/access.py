"""The rule that decides whether an agent may call a tool, and why: every verdict anywhere is made here.

A live tool_grant decides; else a live server_grant; else the server's default policy (`opt-out` allows, anything
else denies); a server nobody knows denies. Capability rows say what an agent is for and decide nothing. A grant
that asks leaves each call to a person: it allows nothing by itself, and where nobody can be asked it denies.

A grant may be written before its server is registered, and decides all the same: the verdict then also says
that the server is unknown (`is_unknown`).

What is unclear denies. Of several live rows of one kind a denial wins, then one that asks, and among equals the
newest; an unknown permission denies; an end that cannot be read makes an allowing row void, leaves a denying row in
force and lets one that asks deny. `find_grant_field_problems` says so of each such row, so that pages can flag it.

A temporary grant can override others of its slot: it names their ids in its metadata (ON_TOP_OF). While it is live
they do not count; once it is over they do again. A row that it does not name, such as a newer denial of another
program, counts as well.

`AccessPolicy` holds the rows that matter to some agents and servers and answers without the database, so the endpoint
that enforces, the matrix and a preview of unsaved edits all run the same lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from django.conf import settings

from coordinator.lib import instants
from coordinator.models import Grant, McpServer, McpTool
from coordinator.models.mcp import (
    DefaultPolicy,
    EntryType,
    GrantPermission,
    GrantWord,
    permission_with_ask_flag,
)

ALLOW, ASK, DENY = GrantWord.ALLOW.value, GrantWord.ASK.value, GrantWord.DENY.value
STRICTEST_FIRST = (DENY, ASK, ALLOW)
PARTICIPLES = {ALLOW: "allowed", ASK: "asked", DENY: "denied"}
TOOL_GRANT, SERVER_GRANT = EntryType.TOOL_GRANT.value, EntryType.SERVER_GRANT.value
DEFAULT_POLICY, UNKNOWN_SERVER = "default_policy", "unknown_server"

ON_TOP_OF = "on_top_of"  # the member of a grant's metadata that lists the ids of the grants beneath it

Matrix = dict[tuple[str, str], dict[str, "Verdict"]]
GrantLike = TypeVar("GrantLike", "GrantRow", Grant)


class GrantRow(NamedTuple):
    """A row of `mcp_access_control` as a verdict needs it; odd dates are text (models.fields.UnreadableText)."""

    id: int
    entry_type: str
    agent_id: str
    server_id: str
    tool_name: str | None
    permission: str
    granted_by: str | None
    granted_at: Any
    expires_at: Any
    justification: str | None
    asks: bool = False
    metadata: Any = None

    @property
    def effective_permission(self) -> str:
        """What the row says: allow, ask or deny; an unknown word is returned unchanged."""
        return permission_with_ask_flag(self.permission, self.asks)

    @property
    def decision_while_live(self) -> str:
        """What the row says of a call while it counts."""
        if self.effective_permission == ALLOW:
            return ALLOW
        ends_well = self.expires_at is None or isinstance(self.expires_at, datetime)
        return ASK if self.effective_permission == ASK and ends_well else DENY

    def is_live(self, at: datetime, *, past: bool = False) -> bool:
        """Say whether the row counts at `at`. Of the past, rows that were not given yet are left out."""
        if past and isinstance(self.granted_at, datetime) and self.granted_at > at:
            return False
        if self.expires_at is None:
            return True
        if not isinstance(self.expires_at, datetime):
            return self.effective_permission != ALLOW
        return self.expires_at > at


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a call is allowed or a person is asked, by which rule and, where a grant decided, by which row."""

    decision: str
    source: str
    server_id: str
    grant: GrantRow | None = None
    default_policy: str | None = None
    # Set where the tool's definition changed after it was granted and nobody has accepted that yet.
    changed_at: datetime | None = None
    # No server of this name is registered: a grant decided, or nothing did.
    is_unknown: bool = False
    # What holds once the row that decided has ended; None where it has no end, and of the past.
    then: Verdict | None = None

    @property
    def is_allowed(self) -> bool:
        """Say whether the call may run as it is; where `asks`, it may once a person approved it."""
        return self.decision == ALLOW

    @property
    def requires_approval(self) -> bool:
        return self.decision == ASK

    @property
    def is_denied(self) -> bool:
        return not self.is_allowed and not self.requires_approval

    @property
    def is_by_default(self) -> bool:
        """Say whether no grant decided."""
        return self.source in {DEFAULT_POLICY, UNKNOWN_SERVER}

    @property
    def expires_at(self) -> datetime | None:
        """When the row that decided ends; None where no end is known."""
        end = self.grant.expires_at if self.grant else None
        return end if isinstance(end, datetime) else None

    @property
    def reason(self) -> str:
        if self.source == UNKNOWN_SERVER:
            return f"There is no MCP server {self.server_id!r} here."
        decision_reason = self.build_reason_without_expiry()
        if self.is_by_grant_overriding_grant and self.then is not None and self.expires_at is not None:
            until = self.expires_at.strftime("%Y-%m-%d %H:%M")
            decision_reason = f"{decision_reason} Until {until} UTC, then {PARTICIPLES[self.then.decision]}."
        return (
            f"{decision_reason} There is no MCP server {self.server_id!r} here."
            if self.is_unknown
            else decision_reason
        )

    @property
    def is_by_grant_overriding_grant(self) -> bool:
        """Say whether the grant that decided overrides another one."""
        return self.grant is not None and bool(grant_ids_overridden_by_row(self.grant))

    def build_reason_without_expiry(self) -> str:
        if self.changed_at is not None and self.is_denied:
            since = "" if self.grant is None else " after it was granted"
            return f"The tool's definition changed{since}, and nobody has accepted the change yet."
        if self.grant is None:
            word = "allows" if self.is_allowed else "denies"
            return f"No grant applies, and {self.server_id} {word} calls without a grant."
        scope = "this tool" if self.source == TOOL_GRANT else f"all tools of {self.server_id}"
        somebody = self.grant.granted_by or "somebody"
        sentence = f"{'Allowed' if self.is_allowed else 'Denied'} for {scope} by {somebody}"
        if self.requires_approval:
            sentence = f"{somebody} requires approval for each call of {scope.removeprefix('all ')}"
        return f"{sentence}: {self.grant.justification}" if self.grant.justification else f"{sentence}."

    def verdict_as_json(self) -> dict[str, Any]:
        """Return the verdict as machine endpoints report it."""
        until = self.expires_at
        return {
            "verdict": self.decision,
            "source": self.source,
            "unknown_server": self.is_unknown,
            "grant_id": self.grant.id if self.grant else None,
            "until": instants.format_canonical_instant(until) if until else None,
            "then": self.then.decision if self.then else None,
            "reason": self.reason,
        }


@dataclass
class AccessPolicy:
    """The rows that decide about some agents and servers. Asking it costs no query.

    `servers` maps a server's name to its default policy, `accepted_only` are those that serve no changed tool before a
    person accepted it; `slots` an agent and a server to the rows of each tool
    (None: of the whole server); `changed` a server and a tool to when its definition changed, unaccepted.
    """

    servers: dict[str, str] = field(default_factory=dict)
    slots: dict[tuple[str, str], dict[str | None, list[GrantRow]]] = field(default_factory=dict)
    changed: dict[tuple[str, str], datetime] = field(default_factory=dict)
    accepted_only: set[str] = field(default_factory=set)

    def add_grant(self, row: GrantRow) -> None:
        """Take in one row. One whose kind and tool name contradict each other is in nobody's way."""
        if (row.entry_type == TOOL_GRANT and row.tool_name) or (
            row.entry_type == SERVER_GRANT and row.tool_name is None
        ):
            slots = self.slots.setdefault((row.agent_id, row.server_id), {})
            slots.setdefault(row.tool_name, []).append(row)

    def tools_with_grants_or_changes(self, agent_id: str, server_id: str) -> set[str]:
        """Return the tools of the server about which something is said for this agent or for all."""
        granted_tools = {tool for tool in self.slots.get((agent_id, server_id), ()) if tool}
        return granted_tools | {tool for server, tool in self.changed if server == server_id}

    def decide_tool_access(
        self, agent_id: str, server_id: str, tool_name: str, at: datetime, *, past: bool = False
    ) -> Verdict:
        """Return whether `agent_id` may call the tool at `at`, by the rows held here."""
        verdict = self._decide_without_lookahead(agent_id, server_id, tool_name, at, past=past)
        if past or verdict.expires_at is None:
            return verdict
        # One step ahead, not all of them: there may be more rows than a stack has room for.
        return replace(
            verdict,
            then=self._decide_without_lookahead(
                agent_id, server_id, tool_name, verdict.expires_at, past=False
            ),
        )

    def _decide_without_lookahead(
        self, agent_id: str, server_id: str, tool_name: str, at: datetime, *, past: bool
    ) -> Verdict:
        default = self.servers.get(server_id)
        slots = self.slots.get((agent_id, server_id), {})
        verdict = decide_by_grants_or_none(slots.get(tool_name), TOOL_GRANT, server_id, at, past)
        verdict = verdict or decide_by_grants_or_none(slots.get(None), SERVER_GRANT, server_id, at, past)
        if default is None:
            verdict = replace(verdict, is_unknown=True) if verdict else build_unknown_server_denial(server_id)
        else:
            verdict = verdict or decide_by_default_policy(server_id, default)
        changed_at = self.changed.get((server_id, tool_name))
        if changed_at is None or (past and changed_at > at):
            return verdict
        return self._tighten_verdict_by_definition_change(verdict, server_id, changed_at)

    def verdicts_by_tool_of_server(
        self, agent_id: str, server_id: str, tools: Iterable[str], at: datetime, *, past: bool = False
    ) -> dict[str, Verdict]:
        """Return `verdict` for many tools of one server; those without a row of their own share one answer."""
        slots = self.slots.get((agent_id, server_id), {})
        # No tool has the empty name, so this is what holds where a tool says nothing itself.
        shared = self.decide_tool_access(agent_id, server_id, "", at, past=past)
        own = slots.keys() | {tool for server, tool in self.changed if server == server_id}
        return {
            tool: self.decide_tool_access(agent_id, server_id, tool, at, past=past) if tool in own else shared
            for tool in tools
        }

    def _tighten_verdict_by_definition_change(
        self, verdict: Verdict, server_id: str, changed_at: datetime
    ) -> Verdict:
        if verdict.is_denied:
            return verdict
        if server_id in self.accepted_only:
            return replace(verdict, decision=DENY, changed_at=changed_at)
        if is_grant_newer_than_change(verdict.grant, changed_at):
            return verdict
        decision = DENY if settings.DENY_CHANGED_TOOLS else verdict.decision
        return replace(verdict, decision=decision, changed_at=changed_at)


def build_unknown_server_denial(server_id: str) -> Verdict:
    """Return the denial of a call to a server that nobody registered and no grant speaks of."""
    return Verdict(DENY, UNKNOWN_SERVER, server_id, is_unknown=True)


def decide_by_grants_or_none(
    rows: list[GrantRow] | None, source: str, server_id: str, at: datetime, past: bool
) -> Verdict | None:
    live = topmost_grants_of_slot([row for row in rows or () if row.is_live(at, past=past)])
    if not live:
        return None
    strictest = min((row.decision_while_live for row in live), key=STRICTEST_FIRST.index)
    row = max([row for row in live if row.decision_while_live == strictest], key=grant_age_key)
    return Verdict(strictest, source, server_id, row)


def grant_ids_overridden_by_row(row: GrantRow | Grant) -> list[int]:
    """Return the ids of the grants that the row was laid upon, as its metadata names them."""
    ids = row.metadata.get(ON_TOP_OF) if isinstance(row.metadata, dict) else None
    return [number for number in ids if isinstance(number, int)] if isinstance(ids, list) else []


def topmost_grants_of_slot(rows: Sequence[GrantLike]) -> list[GrantLike]:
    """Return those of a slot's live rows that no other of them overrides. A row overrides older ones only."""
    by_id = {row.id: row for row in rows}
    covered = {
        number
        for row in rows
        for number in grant_ids_overridden_by_row(row)
        if number in by_id and grant_age_key(by_id[number]) < grant_age_key(row)
    }
    return [row for row in rows if row.id not in covered]


def decide_by_default_policy(server_id: str, policy: str) -> Verdict:
    decision = ALLOW if policy == DefaultPolicy.OPT_OUT else DENY
    return Verdict(decision, DEFAULT_POLICY, server_id, default_policy=policy)


def grant_age_key(row: GrantRow | Grant) -> tuple[datetime, int]:
    """Order rows from the oldest; one whose date cannot be read is older than all."""
    return (row.granted_at if isinstance(row.granted_at, datetime) else instants.EPOCH, row.id)


def is_grant_newer_than_change(row: GrantRow | None, changed_at: datetime) -> bool:
    return row is not None and isinstance(row.granted_at, datetime) and row.granted_at >= changed_at


def resolve_tool_access(
    agent_id: str, server_id: str, tool_name: str, now: datetime, *, at: datetime | None = None
) -> Verdict:
    """Return the verdict on one call now or at `at`, which may be in the past or the future.

    The past is read from the grants table, where ended rows stay; the server's policy is today's.
    """
    at = at or now
    return load_policy_for_agents([agent_id], [server_id], at).decide_tool_access(
        agent_id, server_id, tool_name, at, past=at < now
    )


def resolve_access_matrix(
    agent_ids: Collection[str],
    tools: Mapping[str, Collection[str]],
    now: datetime,
    *,
    at: datetime | None = None,
) -> Matrix:
    """Return the verdicts of every agent on every tool, `tools` by server: three queries, whatever the size."""
    at = at or now
    return build_verdict_matrix(
        load_policy_for_agents(agent_ids, tools, at), agent_ids, tools, at, past=at < now
    )


def build_verdict_matrix(
    policy: AccessPolicy,
    agent_ids: Iterable[str],
    tools: Mapping[str, Collection[str]],
    at: datetime,
    *,
    past: bool = False,
) -> Matrix:
    """Return `resolve_access_matrix` by a policy that is loaded already, such as one with edits that are not saved."""
    return {
        (agent_id, server_id): policy.verdicts_by_tool_of_server(agent_id, server_id, names, at, past=past)
        for agent_id in agent_ids
        for server_id, names in tools.items()
    }


MOST_NAMED = 400  # more agents or servers are cheaper to read all than to name


def load_policy_for_agents(
    agent_ids: Collection[str] | None = None,
    server_ids: Collection[str] | None = None,
    at: datetime | None = None,
) -> AccessPolicy:
    """Read the policy for these agents and servers (None: all). With `at`, rows over by then are left out."""
    servers = McpServer.objects.all()
    grants = Grant.objects.filter(entry_type__in=[TOOL_GRANT, SERVER_GRANT])
    changed = McpTool.objects.with_changed_definition()
    if server_ids is not None and len(server_ids) <= MOST_NAMED:
        servers = servers.filter(name__in=server_ids)
        grants = grants.filter(server_id__in=server_ids)
        changed = changed.filter(server_id__in=server_ids)
    if agent_ids is not None and len(agent_ids) <= MOST_NAMED:
        grants = grants.filter(agent_id__in=agent_ids)
    if at is not None:
        # An end that cannot be read has no instant either: those rows come along, is_live judges them.
        grants = grants.not_ended(at)
    server_rows = list(servers.values_list("name", "default_policy", "accepted_only__pk"))
    policy = AccessPolicy(
        servers={name: default for name, default, _ in server_rows},
        accepted_only={name for name, _, accepted_only in server_rows if accepted_only is not None},
        changed={(row.server_id, row.name): row.changed_at for row in changed if row.changed_at},
    )
    for values in grants.order_by("id").values_list(*GrantRow._fields):
        policy.add_grant(GrantRow._make(values))
    return policy


def load_default_policies_by_server(now: datetime, agent_id: str | None = None) -> dict[str, str | None]:
    """Return each server's default policy by its name, in order; None for one that only a live grant names.

    With `agent_id`, only that agent's grants are looked through.
    """
    grants = Grant.objects.filter(entry_type__in=[TOOL_GRANT, SERVER_GRANT]).not_ended(now)
    if agent_id is not None:
        grants = grants.filter(agent_id=agent_id)
    policies_by_server: dict[str, str | None] = dict.fromkeys(
        grants.values_list("server_id", flat=True).distinct()
    )
    policies_by_server |= McpServer.objects.exclude(name=None).values_list("name", "default_policy")
    return dict(sorted(policies_by_server.items()))


@dataclass(frozen=True, slots=True)
class ToolSummary:
    """How a server's tool is given out: agents with a live grant of its own, and with the server's only."""

    tool: str
    allowed: int
    approval_needed: int
    denied: int
    inherited: int


def summarize_grants_of_server_tools(
    server_id: str, now: datetime, tools: Iterable[str] = ()
) -> list[ToolSummary]:
    """Return one line for each tool that is known, among `tools`, or named by a live grant, by name."""
    policy = load_policy_for_agents(None, [server_id], now)
    mcp_tool_rows = McpTool.objects.filter(server_id=server_id).values_list("name", flat=True)
    names = {*tools, *mcp_tool_rows, *(tool for slots in policy.slots.values() for tool in slots if tool)}
    agents = [agent for agent, _ in policy.slots]
    lines = []
    for tool in sorted(names):
        tool_accesses = [policy.decide_tool_access(agent, server_id, tool, now) for agent in agents]
        own = [verdict for verdict in tool_accesses if verdict.source == TOOL_GRANT]
        grant_decisions = [verdict.grant.decision_while_live for verdict in own if verdict.grant is not None]
        inherited = sum(verdict.source == SERVER_GRANT for verdict in tool_accesses)
        allowed, ask_count, denied = (grant_decisions.count(word) for word in (ALLOW, ASK, DENY))
        lines.append(ToolSummary(tool, allowed, ask_count, denied, inherited))
    return lines


def find_grant_field_problems(row: GrantRow | Grant) -> list[str]:
    """Say what is odd about a row that another program wrote, and what it counts for."""
    return [
        fault
        for fault in (
            find_grant_type_problem(row),
            find_unknown_permission_problem(row),
            *find_grant_date_problems(row),
        )
        if fault
    ]


def find_grant_type_problem(row: GrantRow | Grant) -> str | None:
    if row.entry_type == SERVER_GRANT and row.tool_name is not None:
        return "ignored: a server grant must not name a tool"
    if row.entry_type == TOOL_GRANT and not row.tool_name:
        return "ignored: a tool grant must name a tool"
    return None


def find_unknown_permission_problem(row: GrantRow | Grant) -> str | None:
    is_known_permission = row.permission in GrantPermission.values
    return None if is_known_permission else f"denies: {row.permission!r} is not a known permission"


def find_grant_date_problems(row: GrantRow | Grant) -> list[str]:
    problems = []
    if row.expires_at is not None and not isinstance(row.expires_at, datetime):
        problems.append(
            f"{'ignored' if row.effective_permission == ALLOW else 'denies permanently'}: its end cannot be read"
        )
    if not isinstance(row.granted_at, datetime):
        problems.append("counts as the oldest: its time cannot be read")
    return problems
